"""The demo's broker: a child process that is always stopped."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from qbus.cli.failures import Failure

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.005
_LOG_TAIL = 2000


class BrokerProcess:
    """`qbus broker` on a free port of 127.0.0.1; a context manager."""

    def __init__(self, data_dir: Path, options: Sequence[str] = ()) -> None:
        self.data_dir = data_dir
        self.port = _free_port()
        self.exit_code: int | None = None
        self._options = options
        self._log = data_dir / "broker.log"

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def age_seconds(self) -> float:
        """Seconds since the process was started."""
        return time.perf_counter() - self._started

    def memory_bytes(self) -> int:
        """Resident memory, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def __enter__(self) -> Self:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(self.data_dir)]
        self._started = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--listen", self.bootstrap, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C must reach this process only, which then stops the broker.
                start_new_session=True,
            )
        try:
            self._wait_until_it_listens()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.exit_code = self._stop()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise Failure(f"the broker did not start:\n{self._log_tail()}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(_POLL_S)
        raise Failure(f"the broker did not listen within {_START_TIMEOUT_S:.0f} s")

    def _stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:].strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
