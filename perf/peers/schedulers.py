"""Servers that hold messages back, as peers of delayed records: NATS JetStream and beanstalkd.

NATS and the load for both are a Go program, ``schedulers``, that is built at first use. beanstalkd
is installed, or unpacked (``dpkg -x``) into the directory that ``QBUS_BEANSTALKD`` names.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from tests.support.ports import free_port
from tests.support.waiting import wait_until

_SOURCES = Path(__file__).with_name("schedulers")


def missing() -> dict[str, str]:
    """Why a peer cannot run here, by its name; none for one that can."""
    if shutil.which("go") is None:
        return dict.fromkeys(("nats", "beanstalkd"), "there is no go to build it with")
    if _beanstalkd() is None:
        return {"beanstalkd": "there is no beanstalkd, neither installed nor in $QBUS_BEANSTALKD"}
    return {}


@contextmanager
def running(name: str) -> Iterator[tuple[str, psutil.Process]]:
    """A peer over a fresh directory, on disk: its address and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        if name == "nats":
            command = [str(_program()), "serve", str(port), directory]
        else:
            command = [str(_beanstalkd()), "-l", "127.0.0.1", "-p", str(port), "-b", directory]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            known = psutil.Process(process.pid)
            wait_until(lambda: bool(known.net_connections(kind="tcp")), f"{name} to listen")
            yield f"127.0.0.1:{port}", known
        finally:
            process.terminate()
            process.wait(30)


def run(
    name: str, address: str, count: int, lead_ms: int, spread_ms: int, size: int, *, wait: bool
) -> dict[str, float]:
    """Load a peer as :func:`perf.delay_load.load` does; the same results."""
    numbers = (count, lead_ms, spread_ms, size, int(wait))
    command = [str(_program()), name, address, *map(str, numbers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, float] = {}
    for line in done.stdout.splitlines():
        result |= json.loads(line)
    return result


@cache
def _program() -> Path:
    built = Path(tempfile.gettempdir(), f"qbus-schedulers-{os.getuid()}", "schedulers")
    built.parent.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=_SOURCES, check=True, timeout=600)
    return built


def _beanstalkd() -> Path | None:
    unpacked = os.environ.get("QBUS_BEANSTALKD")
    found = str(Path(unpacked, "usr/bin/beanstalkd")) if unpacked else shutil.which("beanstalkd")
    return Path(found) if found and Path(found).exists() else None
