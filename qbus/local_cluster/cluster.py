"""Runs a local cluster: starts its nodes, notices when they exit, and stops them in order."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Self

from qbus.local_cluster import secure
from qbus.local_cluster.layout import (
    BROKER,
    KINDS,
    Layout,
    LocalClusterError,
    kind_and_number,
    node_name,
)
from qbus.local_cluster.nodes import commands, known_brokers, serves
from qbus.local_cluster.process import NodeProcess, log_tail, running_pid
from qbus.local_cluster.settings import ClusterSettings
from qbus.service.lock import DirectoryInUse, DirectoryLock

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02


class Ended(NamedTuple):
    """A node's process has exited."""

    name: str
    exit_code: int


class Started(NamedTuple):
    """A node's process has been started."""

    name: str
    pid: int


class LocalCluster:
    """The cluster in ``layout``: its directory is locked on entry, its nodes stop on exit.

    Only one process at a time runs it; the nodes are its children and exit with it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.nodes: dict[str, NodeProcess] = {}
        self._ready: dict[str, Callable[[], bool]] = {}
        self._lock = DirectoryLock(layout.lock)

    def __enter__(self) -> Self:
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except DirectoryInUse as error:
            raise LocalClusterError(
                f"{self.layout.directory} is in use: a cluster runs there"
            ) from error
        self._clear()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        except BaseException:  # such as a second Ctrl-C
            for node in self.nodes.values():
                node.kill()
            raise
        finally:
            self._lock.release()

    def start(self, settings: ClusterSettings, on_start: Callable[[Started], None]) -> None:
        """Start all nodes, kind by kind; return when they serve.

        Raises LocalClusterError if a node exits or does not serve in time.
        """
        settings.write(self.layout.settings)
        self._add(settings)
        for kind in KINDS:
            names = self._of(kind)
            for name in names:
                on_start(self._start(name))
            self._wait_ready(names)
        self._wait_acquainted(settings)

    def poll(self) -> list[Ended | Started]:
        """Start the nodes that were requested; return what happened since the last call."""
        events: list[Ended | Started] = []
        for name, node in self.nodes.items():
            code = node.exit_code()
            if code is not None:
                events.append(Ended(name, code))
            request = self.layout.request(name)
            if request.exists():
                if node.pid is None:
                    events.append(self._start(name))
                request.unlink(missing_ok=True)
        return events

    def stop(self) -> None:
        """Stop Spark, then the brokers, then the ZooKeepers."""
        for kind in reversed(KINDS):
            nodes = [self.nodes[name] for name in self._of(kind)]
            for node in nodes:
                node.terminate()
            for node in nodes:
                node.wait(_STOP_TIMEOUT_S)

    def is_ready(self, name: str) -> bool:
        """Whether a node serves."""
        return self._ready[name]()

    def _start(self, name: str) -> Started:
        node = self.nodes[name]
        node.start()
        assert node.pid is not None
        return Started(name, node.pid)

    def _wait_ready(self, names: Iterable[str]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        for name in names:
            self._wait(name, partial(self.is_ready, name), "does not serve yet", deadline)

    def _wait_acquainted(self, settings: ClusterSettings) -> None:
        """Wait until each broker knows all: before, one may refuse to replicate a new topic."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        if settings.secure:
            secure.complete(self.layout, settings, deadline)
            return
        for number in settings.numbers(BROKER):
            knows_all = partial(_knows_all, settings, number)
            problem = "does not know the other brokers"
            self._wait(node_name(BROKER, number), knows_all, problem, deadline)

    def _wait(self, name: str, is_done: Callable[[], bool], problem: str, deadline: float) -> None:
        """Wait for a node; raise LocalClusterError if it exits, or after the deadline."""
        log = self.layout.log(name)
        while not is_done():
            code = self.nodes[name].exit_code()
            if code is not None:
                raise LocalClusterError(
                    f"{name} exited with {code}; end of {log}:\n{log_tail(log)}"
                )
            if time.monotonic() > deadline:
                raise LocalClusterError(f"{name} {problem}: see {log}")
            time.sleep(_POLL_S)

    def _add(self, settings: ClusterSettings) -> None:
        for name, command in commands(self.layout, settings).items():
            log, pid_file = self.layout.log(name), self.layout.pid_file(name)
            self.nodes[name] = NodeProcess(name, command, log, pid_file)
            self._ready[name] = partial(serves, settings, *kind_and_number(name))

    def _of(self, kind: str) -> list[str]:
        return [name for name in self.nodes if kind_and_number(name)[0] == kind]

    def _clear(self) -> None:
        """Remove what a killed run left: its files, and processes that still run."""
        directory = self.layout.directory
        for path in directory.glob("*.pid"):
            pid = running_pid(path, directory)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            path.unlink()
        for path in directory.glob("*.start"):
            path.unlink()


def _knows_all(settings: ClusterSettings, number: int) -> bool:
    return known_brokers(settings, number) >= settings.nodes
