"""A Qbus broker as a real process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from .ports import free_port
from .readiness import answers

__all__ = ["BrokerProcess", "BrokerProcessError", "free_port"]

_LOG_LIMIT = 256 * 1024


class BrokerProcessError(AssertionError):
    """The broker did not start, or did not stop, as it should; the message ends with its log."""


class BrokerProcess:
    """``qbus broker`` on 127.0.0.1, started on entry and always stopped and reaped on exit.

    Data directory and port stay the same over ``restart()`` and over ``kill()`` and ``start()``.
    ``options`` are further arguments of ``qbus broker``; ``env`` is added to the environment.
    """

    #: Every live instance: their logs are attached to a failing test's report.
    instances: ClassVar[weakref.WeakSet["BrokerProcess"]] = weakref.WeakSet()

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.options = options
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        # Appending lets the broker's threads and its restarts share one file.
        self._log = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - lives as long as this object
        BrokerProcess.instances.add(self)

    @property
    def bootstrap(self) -> str:
        """The address for clients: ``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> Self:
        """Start the process and, unless told otherwise, wait until it answers."""
        if self.alive:
            raise RuntimeError("the broker runs already")
        command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(self.data_dir)]
        self._process = subprocess.Popen(
            [*command, "--listen", self.bootstrap, *self.options],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._env,
        )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the broker answers ApiVersions; fail at once if it exits instead."""
        deadline = time.monotonic() + timeout
        while not answers(self.port):
            code = self._running().poll()
            if code is not None:
                raise BrokerProcessError(f"the broker exited with {code}\n{self.log_text()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerProcessError(f"no answer within {timeout} s\n{self.log_text()}")
            time.sleep(0.01)

    def stop(self, timeout: float = 30.0) -> None:
        """Send SIGTERM and wait for the drain; fail if it takes too long or exits with an error."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerProcessError(f"not stopped in {timeout} s\n{self.log_text()}") from None
        self._process = None
        if code != 0:
            raise BrokerProcessError(f"the broker exited with {code} on SIGTERM\n{self.log_text()}")

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

    def log_text(self) -> str:
        """Return the end of what all runs of this broker have printed so far."""
        size = os.fstat(self._log.fileno()).st_size
        data = os.pread(self._log.fileno(), _LOG_LIMIT, max(0, size - _LOG_LIMIT))
        return data.decode(errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker does not run")
        return self._process

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._reap()
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop what still runs; without another failure, a broker that had died by itself fails."""
        if exc_type is None and self._process is not None:
            self.stop()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self.kill()
