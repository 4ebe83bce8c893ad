"""Running a command's coroutine until it is done, interrupted or terminated."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import click

from qbus.cli.failures import TERMINATED


def run_to_end(command: Coroutine[Any, Any, None]) -> None:
    """Run ``command``; Ctrl-C and SIGTERM both cancel it, so that it leaves its group in order."""
    try:
        asyncio.run(_cancelled_by_sigterm(command))
    except asyncio.CancelledError:
        raise click.exceptions.Exit(TERMINATED) from None


async def _cancelled_by_sigterm(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await command
