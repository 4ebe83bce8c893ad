"""The shipper of files as a real process, to be killed at any moment."""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qbus.agent.config import read, to_toml


class AgentProcess:
    """A process with a configuration (a document of TOML's types) and a directory of positions."""

    def __init__(self, directory: Path, document: dict[str, Any]) -> None:
        self.directory = directory
        self._config = directory / "agent.toml"
        self._config.write_text(to_toml(read(document)))
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed with this object

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start the process."""
        assert self._process is None
        command = [sys.executable, "-m", "tests.support.agent_main", str(self._config)]
        self._process = subprocess.Popen(
            [*command, str(self.directory / "data")],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        return self

    def kill(self) -> None:
        """Send SIGKILL and wait; fail if the process had ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self.log_text()
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self, timeout: float = 60.0) -> None:
        """Send SIGTERM, and wait until it has drained."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(timeout)
        self._process = None
        assert code == 0, self.log_text()

    def log_text(self) -> str:
        """Return its output."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if error is not None:
            print(self.log_text())
        self._log.close()
