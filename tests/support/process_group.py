"""A process with a group of its own, such as a Python driver and its Java, that is killed whole."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class ProcessGroup:
    """Runs at most one at a time; what it prints is added to ``log``."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and its first process has not ended."""
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str], cwd: Path | None = None) -> None:
        """Start it anew; what may be left of the group before is killed."""
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
        """End all of its processes at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
