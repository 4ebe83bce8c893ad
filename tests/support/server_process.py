"""A server as a real process of its own: started, watched, stopped and always reaped by its pid."""

import os
import signal
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, ClassVar, Self

from . import slow_handlers
from .ports import free_port
from .readiness import answers

_LOG_LIMIT = 256 * 1024
WHOLE_LOG = 256 * 1024 * 1024


def _end_of(log: IO[bytes], limit: int) -> str:
    size = os.fstat(log.fileno()).st_size
    data = os.pread(log.fileno(), limit, max(0, size - limit))
    return data.decode(errors="replace")


def _close(log: IO[bytes]) -> None:
    slow_handlers.keep(_end_of(log, WHOLE_LOG))
    log.close()


class ServerProcessError(AssertionError):
    """A server did not start, or did not stop, as it should; the message ends with its log."""


class StartupTimeout(ServerProcessError):  # noqa: N818 - names the condition
    """A server lives, but did not answer in time: the only failure that a test is run again for."""


class ServerProcess(ABC):
    """A Kafka-speaking server, started on entry and stopped on exit.

    Its port stays the same over ``restart()`` and over ``kill()`` and ``start()``. A server that
    has died by itself fails the ``with`` block. ``env`` is added to the environment.
    """

    name: ClassVar[str]

    #: Every live instance: their logs are attached to a failing test's report.
    instances: ClassVar[weakref.WeakSet["ServerProcess"]] = weakref.WeakSet()

    #: How a server ends that was told to by SIGTERM.
    clean_exit_codes: ClassVar[frozenset[int]] = frozenset({0})

    #: Where it listens, and what goes before its command, such as ``ip netns exec NAME``.
    host: str = "127.0.0.1"
    prefix: Sequence[str] = ()

    def __init__(self, port: int | None = None, env: Mapping[str, str] | None = None) -> None:
        self.port = port or free_port()
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        # Appending lets the server's threads and its restarts share one file.
        self._log = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed with this object
        weakref.finalize(self, _close, self._log)
        ServerProcess.instances.add(self)

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments."""

    @property
    def bootstrap(self) -> str:
        """The address for clients: ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> Self:
        """Start the process and, unless told otherwise, wait until it answers."""
        if self.alive:
            raise RuntimeError("the server runs already")
        self._process = subprocess.Popen(
            [*self.prefix, *self.command()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._env,
        )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until the server answers; fail at once if it exits instead.

        Raises StartupTimeout after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.serves():
            code = self._running().poll()
            if code is not None:
                raise ServerProcessError(self._failure(f"exited with {code}"))
            if time.monotonic() > deadline:
                self.kill()
                raise StartupTimeout(self._failure(f"did not answer within {timeout} s"))
            time.sleep(0.01)

    def serves(self) -> bool:
        """Whether the server answers requests."""
        return answers(self.port, host=self.host)

    def stop(self, timeout: float = 60.0) -> None:
        """Send SIGTERM and wait for the drain; fail if it takes too long or exits with an error."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerProcessError(self._failure(f"did not stop within {timeout} s")) from None
        self._process = None
        if code not in self.clean_exit_codes:
            raise ServerProcessError(self._failure(f"exited with {code} on SIGTERM"))

    def kill(self) -> None:
        """Send SIGKILL and reap the process."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop with a drain, then start again."""
        self.stop()
        self.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send any other signal, such as SIGSTOP and SIGCONT."""
        self._running().send_signal(number)

    def log_text(self, limit: int = _LOG_LIMIT) -> str:
        """Return the last ``limit`` bytes of what all runs of this server have printed so far."""
        return _end_of(self._log, limit)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process

    def _failure(self, what: str) -> str:
        return f"{self.name} {what}\n{self.log_text()}"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._reap()
            raise

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is None and self._process is not None:
            self.stop()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self.kill()


class ServerGroup(ABC):
    """Servers that are started together on entry, in stages, and killed on exit."""

    @property
    @abstractmethod
    def stages(self) -> Sequence[Iterable[ServerProcess]]:
        """The servers; those of a stage start once all of the stage before it serve."""

    def start(self) -> None:
        """Start all servers, and wait until they serve."""
        for stage in self.stages:
            servers = list(stage)
            for server in servers:
                server.start(wait=False)
            for server in servers:
                server.wait_ready()

    def kill(self) -> None:
        """Kill the servers that run, the last stage first."""
        for stage in reversed(self.stages):
            for server in stage:
                if server.alive:
                    server.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
