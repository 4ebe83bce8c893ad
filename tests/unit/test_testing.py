"""The broker in a container, as far as it can be seen without a Docker engine."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from qbus import testing
from qbus.cli.broker.command import broker
from qbus.testing import start_script


def last_words(program: str, **environment: str) -> str:
    """The end of what Python says of a program that fails, in a process of its own."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_without_an_engine_that_is_said() -> None:
    program = "from qbus.testing import QbusContainer; QbusContainer()"
    said = last_words(program, DOCKER_HOST="unix:///nowhere/docker.sock")
    assert said.startswith("qbus.errors.QbusError: no Docker engine answers: ")


def test_without_the_package_the_extra_is_named() -> None:
    program = "import sys; sys.modules['testcontainers.core.container'] = None; import qbus.testing"
    assert last_words(program) == (
        "qbus.errors.MissingExtra: qbus.testing needs testcontainers:"
        f" {sys.executable} -m pip install 'qbus[testing]'"
    )


def test_the_shell_starts_a_broker_once_its_address_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by a real shell, with a `qbus` that prints what it is given."""
    advertised = tmp_path / "advertised"
    monkeypatch.setattr(testing, "_ADVERTISED", str(advertised))
    command = tmp_path / "qbus"
    command.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    command.chmod(0o755)
    script = start_script({"num.partitions": "3", "log.dirs.note": "a b"})
    with subprocess.Popen(
        ["sh", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        with pytest.raises(subprocess.TimeoutExpired):
            shell.wait(0.2)
        advertised.write_text("localhost:32768\n")
        said, _ = shell.communicate(timeout=30)
    name, *words = said.splitlines()
    assert name == "broker"
    known = {option for parameter in broker.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
    assert words[words.index("--advertise") + 1] == "localhost:32768"
    assert words[-4:] == ["-o", "num.partitions=3", "-o", "log.dirs.note=a b"]


def test_a_value_cannot_leave_its_option() -> None:
    script = start_script({"x": "'; rm -rf / #"})
    assert shlex.split(script)[-1] == "x='; rm -rf / #"
