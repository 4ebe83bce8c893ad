"""A process and its children, such as a Python driver and its JVM, killed as a group."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class ProcessGroup:
    """Runs at most one process at a time; its output is appended to ``log``."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not exited."""
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str], cwd: Path | None = None) -> None:
        """Start the process; kill what is left of the previous group."""
        self.kill()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill all processes of the group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
