"""Servers of jobs, as peers of Qbus's queues, and the programs that load them.

Disque, beanstalkd and Redis (a stream with a consumer group) are loaded by a Go program,
``job_loads``, which is built at first use, and so is Qbus's listener for Disque's clients. Redis
with BullMQ is loaded by Node.js, with RQ by Python; share groups, Kafka's and Qbus's, by Kafka's
Java client. All obey the same commands (``job_loads/main.go``).

beanstalkd and Redis are installed. Disque is built from its source: ``disque-server`` is on the
path, or ``QBUS_DISQUE_SERVER`` names it.
"""

import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psutil

from perf.peers import java, kafka, maven
from perf.servers import FSYNC, MEMORY
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port, free_ports
from tests.support.waiting import wait_until

#: By what each is loaded: the peers of Qbus's listener for Disque's clients, and of its share
#: groups.
WAYS: dict[str, tuple[str, ...]] = {
    "disque": ("disque", "beanstalkd", "redis", "bullmq", "rq"),
    "share groups": ("kafka",),
}
NAMES = tuple(name for names in WAYS.values() for name in names)
PARTITIONS = 4  # of a share group's topic
_SOURCES = Path(__file__).with_name("job_loads")
_PATIENCE_S = 120.0  # beyond the time that a command is given
# What each needs to have every job on stable storage when it answers; else nothing is awaited, and
# what there is lies in memory (beanstalkd, Disque, Redis) or the page cache (Kafka).
_OPTIONS: dict[str, dict[bool, Sequence[str]]] = {
    "disque": {True: ("--appendonly", "yes", "--appendfsync", "always"), False: ()},
    "redis": {
        True: ("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
        False: ("--save", "", "--appendonly", "no"),
    },
    "beanstalkd": {True: ("-b", ".", "-f", "0"), False: ()},
}


class Load:
    """A program that loads one server, and tells what it measured."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, *words: object, seconds: float = 0.0) -> dict[str, float]:
        """Send a command that takes so long; its result. Raises RuntimeError if it fails."""
        line = " ".join(map(str, words))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise RuntimeError(f"the load has ended before: {line}") from error
        # Each answer is one line, written at once, so none is left in the buffer.
        ready, _, _ = select.select([self._process.stdout], [], [], seconds + _PATIENCE_S)
        answer = self._process.stdout.readline() if ready else ""
        if not answer:
            raise RuntimeError(f"the load {'failed' if ready else 'did not answer'}: {line}")
        result: dict[str, float] = json.loads(answer)
        return result

    def stop(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class JobServer:
    """A running server and what loads it."""

    name: str
    process: psutil.Process
    load: Load

    def memory(self) -> int:
        """The memory it needs, in bytes: what is resident, of a JVM the objects that live."""
        if self.name == "kafka":
            return java.live_heap(self.process.pid)
        size: int = self.process.memory_info().rss
        return size


def missing(name: str) -> str | None:
    """Why a peer cannot run here; None for one that can."""
    if name == "kafka":
        return kafka.missing()
    if name == "bullmq":
        return _missing_program("redis-server", "node", "npm") or _missing_packages()
    if name == "rq":
        return _missing_program("redis-server") or _missing_module("rq")
    if name == "disque":
        if _disque() is None:
            return "there is no disque-server, neither on the path nor in $QBUS_DISQUE_SERVER"
        return _missing_program("go")
    return _missing_program("redis-server" if name == "redis" else name, "go")


@contextmanager
def running(
    name: str, way: str, size: int, *, durable: bool, processes: int = 1
) -> Iterator[JobServer]:
    """A server over a fresh directory, and what loads it in one of the ``WAYS``.

    ``processes``: Qbus is a broker with so many workers.
    """
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        _server(name, way, Path(directory), durable, processes) as (address, pid),
    ):
        load = Load(*_load_command(name, way, address, size))
        try:
            yield JobServer(name, psutil.Process(pid), load)
        finally:
            load.stop()


@contextmanager
def _server(
    name: str, way: str, directory: Path, durable: bool, processes: int
) -> Iterator[tuple[str, int]]:
    """A server's address, for a way's clients, and its process id."""
    if name == "qbus":
        ports = free_ports(processes)
        jobs = f"127.0.0.1:{ports[0]}"
        options = [] if durable else [*MEMORY.qbus]
        options += ["--disque-listen", jobs] if way == "disque" else []
        options += ["--workers", str(processes)] if processes > 1 else []
        with BrokerProcess(directory, *options) as qbus:
            if way == "disque":
                wait_until(lambda: all(map(_listens, ports)), "each worker of Qbus to listen")
            yield jobs if way == "disque" else qbus.bootstrap, qbus.pid
    elif name == "kafka":
        with kafka.KafkaProcess(directory, FSYNC.kafka if durable else None) as broker:
            yield broker.bootstrap, broker.pid
    else:
        server = "redis" if name in {"bullmq", "rq"} else name
        with _started(server, directory, _OPTIONS[server][durable]) as found:
            yield found


@contextmanager
def _started(server: str, directory: Path, options: Sequence[str]) -> Iterator[tuple[str, int]]:
    port = _port_with_bus() if server == "disque" else free_port()
    if server == "beanstalkd":
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port)]
    else:
        program = _disque() if server == "disque" else "redis-server"
        command = [str(program), "--bind", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, *options],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: process.poll() is not None or _listens(port), f"{server} to listen")
        assert process.poll() is None, f"{server} has ended with {process.poll()}"
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait(30)


def _port_with_bus() -> int:
    """A free port; Disque's nodes speak to each other on the one that is 10,000 above it."""
    while True:
        port = free_port()
        with socket.socket() as bus:
            try:
                bus.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5.0).close()
    except ConnectionRefusedError:
        return False
    return True


def _load_command(
    name: str, way: str, address: str, size: int
) -> tuple[list[str], dict[str, str] | None]:
    """The command line of what loads a server, and its environment."""
    if way == "share groups":
        # Only what is not the program's own: java runs a source file after its options.
        options = java.command("", heap="1G")[1:-1]
        source = str(_SOURCES / "JobLoad.java")
        return ["java", *options, source, address, str(size), str(PARTITIONS)], None
    if name == "bullmq":
        environment = {**os.environ, "NODE_PATH": str(_packages())}
        return ["node", str(_SOURCES / "bullmq.js"), address, str(size)], environment
    if name == "rq":
        # As a module that is imported: RQ runs no functions of a program's own.
        script = "from perf.peers.job_loads.rq_load import main; main()"
        return [sys.executable, "-c", script, address, str(size)], None
    return [_program(), "disque" if name == "qbus" else name, address, str(size)], None


def _missing_program(*names: str) -> str | None:
    absent = [name for name in names if shutil.which(name) is None]
    return f"there is no {absent[0]}" if absent else None


def _missing_module(name: str) -> str | None:
    return None if find_spec(name) else f"{name} is not installed: pip install {name}"


def _missing_packages() -> str | None:
    try:
        _packages()
    except subprocess.SubprocessError:
        return "npm cannot fetch bullmq"
    return None


def _disque() -> str | None:
    return shutil.which(os.environ.get("QBUS_DISQUE_SERVER", "disque-server"))


@cache
def _program() -> str:
    """Build the Go program; its path."""
    built = Path(tempfile.gettempdir(), f"qbus-job-loads-{os.getuid()}", "job_loads")
    built.parent.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=_SOURCES, check=True, timeout=600)
    return str(built)


@cache
def _packages() -> Path:
    """The directory of BullMQ's packages, in the user's cache directory."""
    wanted = (_SOURCES / "package.json").read_bytes()
    target = maven.cache_root() / f"bullmq-{hashlib.sha256(wanted).hexdigest()[:16]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            Path(work, "package.json").write_bytes(wanted)
            npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
            subprocess.run(npm, cwd=work, capture_output=True, check=True, timeout=150)
            # Whole or not at all; of two processes that install at once the first one's stays.
            if not target.is_dir():
                Path(work, "node_modules").rename(target)
    return target
