"""The process that runs a cluster: starts its nodes, notices their ends, stops them in order."""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import IO, NamedTuple, Self

from qbus.local_cluster.errors import LocalClusterError
from qbus.local_cluster.layout import KINDS, Layout, kind_and_number
from qbus.local_cluster.nodes import commands, serves
from qbus.local_cluster.process import NodeProcess, log_tail, running_pid
from qbus.local_cluster.settings import ClusterSettings

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02


class Ended(NamedTuple):
    """A node has ended by itself, or somebody ended it."""

    name: str
    exit_code: int


class Started(NamedTuple):
    """A node has been started."""

    name: str
    pid: int


class LocalCluster:
    """The cluster in ``layout``: locked on entry, stopped on exit.

    Only one process at a time runs it; the nodes are its children and end with it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.nodes: dict[str, NodeProcess] = {}
        self._ready: dict[str, Callable[[], bool]] = {}
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        self._lock = self.layout.lock.open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise LocalClusterError(
                f"{self.layout.directory} is in use: a cluster runs there"
            ) from error
        self._clear()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        except BaseException:  # such as a second Ctrl-C: it is in a hurry
            for node in self.nodes.values():
                node.kill()
            raise
        finally:
            if self._lock is not None:
                self._lock.close()

    def start(self, settings: ClusterSettings, tell: Callable[[Started], None]) -> None:
        """Start all nodes, kind by kind, and return when they serve.

        Raises LocalClusterError, with the end of its log, if one does not.
        """
        settings.write(self.layout.settings)
        self._add(settings)
        for kind in KINDS:
            names = self._of(kind)
            for name in names:
                tell(self._start(name))
            self._wait_ready(names)

    def poll(self) -> list[Ended | Started]:
        """Start what somebody asked for, and tell what happened since the last time."""
        found: list[Ended | Started] = []
        for name, node in self.nodes.items():
            code = node.ended()
            if code is not None:
                found.append(Ended(name, code))
            request = self.layout.request(name)
            if request.exists():
                if node.pid is None:
                    found.append(self._start(name))
                request.unlink(missing_ok=True)
        return found

    def stop(self) -> None:
        """Stop Spark, then the brokers, which hand over what they lead, then the ZooKeepers."""
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
            while not self.is_ready(name):
                log = self.layout.log(name)
                code = self.nodes[name].ended()
                if code is not None:
                    raise LocalClusterError(
                        f"{name} ended with {code}; {log} ends:\n{log_tail(log)}"
                    )
                if time.monotonic() > deadline:
                    raise LocalClusterError(f"{name} does not serve yet: see {log}")
                time.sleep(_POLL_S)

    def _add(self, settings: ClusterSettings) -> None:
        for name, command in commands(self.layout, settings).items():
            log, pid_file = self.layout.log(name), self.layout.pid_file(name)
            self.nodes[name] = NodeProcess(name, command, log, pid_file)
            self._ready[name] = partial(serves, settings, *kind_and_number(name))

    def _of(self, kind: str) -> list[str]:
        return [name for name in self.nodes if kind_and_number(name)[0] == kind]

    def _clear(self) -> None:
        """Remove what a run left that was killed: processes, where the system has not done so."""
        directory = self.layout.directory
        for path in directory.glob("*.pid"):
            pid = running_pid(path, directory)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            path.unlink()
        for path in directory.glob("*.start"):
            path.unlink()
