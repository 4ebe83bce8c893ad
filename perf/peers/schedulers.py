"""Servers that hold messages back, as peers of delayed records: NATS, beanstalkd, RocketMQ.

NATS and the load for it and for beanstalkd are a Go program, ``schedulers``, that is built at first
use. beanstalkd is installed, or unpacked (``dpkg -x``) into the directory that ``QBUS_BEANSTALKD``
names. RocketMQ has a module of its own.
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

from perf.peers import java, rocketmq
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NAMES = ("nats", "beanstalkd", "rocketmq")
_SOURCES = Path(__file__).with_name("schedulers")


def missing(name: str) -> str | None:
    """Why a peer cannot run here; None for one that can."""
    if name == "rocketmq":
        return rocketmq.missing()
    if shutil.which("go") is None:
        return "there is no go to build it with"
    if name == "beanstalkd" and _beanstalkd() is None:
        return "there is no beanstalkd, neither installed nor in $QBUS_BEANSTALKD"
    return None


@contextmanager
def running(name: str) -> Iterator[tuple[str, psutil.Process]]:
    """A peer over a fresh directory, on disk: its address and its process."""
    if name == "rocketmq":
        with rocketmq.running() as found:
            yield found
        return
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        if name == "nats":
            command = [program(), "serve", str(port), directory]
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
    if name == "rocketmq":
        return rocketmq.run(address, count, lead_ms, spread_ms, size, wait=wait)
    numbers = (count, lead_ms, spread_ms, size, int(wait))
    command = [program(), name, address, *map(str, numbers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, float] = {}
    for line in done.stdout.splitlines():
        result |= json.loads(line)
    return result


def memory(name: str, process: psutil.Process) -> int:
    """The memory that a peer needs, in bytes: what is resident, of a JVM the objects that live.

    A JVM takes the heap that it was given, and its resident files are pages of the system's cache.
    """
    return java.live_heap(process.pid) if name == "rocketmq" else process.memory_info().rss


@cache
def program() -> str:
    """Build the Go program; its path."""
    built = Path(tempfile.gettempdir(), f"qbus-schedulers-{os.getuid()}", "schedulers")
    built.parent.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=_SOURCES, check=True, timeout=600)
    return str(built)


def _beanstalkd() -> Path | None:
    unpacked = os.environ.get("QBUS_BEANSTALKD")
    found = str(Path(unpacked, "usr/bin/beanstalkd")) if unpacked else shutil.which("beanstalkd")
    return Path(found) if found and Path(found).exists() else None
