"""Commands end in order when they are told to stop."""

import asyncio
import os
import signal

import click
import pytest

from qbus.cli.running import run_to_end


def test_a_command_runs_to_its_end() -> None:
    done = []

    async def command() -> None:
        await asyncio.sleep(0)
        done.append(True)

    run_to_end(command())
    assert done == [True]


def test_sigterm_lets_the_command_clean_up() -> None:
    cleaned = []

    async def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(click.exceptions.Exit) as stopped:
        run_to_end(command())
    assert stopped.value.exit_code == 143
    assert cleaned == [True]


def test_ctrl_c_lets_the_command_clean_up() -> None:
    cleaned = []

    async def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_to_end(command())
    assert cleaned == [True]
