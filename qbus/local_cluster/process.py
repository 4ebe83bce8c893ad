"""A node as a child process, with a file that tells its process id."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LOG_TAIL = 2000


class NodeProcess:
    """The process of a node: it ends with the process that started it, however that ends."""

    def __init__(self, name: str, command: Sequence[str], log: Path, pid_file: Path) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._pid_file = pid_file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it, and tell its process id."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C is not for them: they are stopped one after the other.
                start_new_session=True,
                preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - no threads here yet
            )
        fresh = self._pid_file.with_suffix(".pid.new")
        fresh.write_text(f"{self._process.pid}\n")
        fresh.replace(self._pid_file)

    def ended(self) -> int | None:
        """How it ended, once: its exit code, negative for a signal; None if it did not just end."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._forget()
        return code

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended, and kill it after ``timeout`` seconds: False if that was so."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._forget()
        return True

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        self._process = None
        self._pid_file.unlink(missing_ok=True)


def running_pid(pid_file: Path, directory: Path) -> int | None:
    """The process that ``pid_file`` tells of; None if it is gone, or was not one of ``directory``.

    Numbers of processes are used again: one of ours has the directory in its command line.
    """
    try:
        pid = int(pid_file.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    prefix = os.fsencode(directory) + b"/"
    return pid if any(argument.startswith(prefix) for argument in arguments) else None


def log_tail(path: Path) -> str:
    """The end of a log."""
    try:
        return path.read_text(errors="replace")[-_LOG_TAIL:].strip()
    except OSError:
        return ""


def _dying_with(parent: int) -> Callable[[], None] | None:
    """What a child does before it becomes the node: ask to be killed when ``parent`` is gone."""
    if not sys.platform.startswith("linux"):
        return None
    set_option = ctypes.CDLL(None).prctl  # between fork and exec nothing is to be loaded

    def before() -> None:
        set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # which is gone already
            os._exit(1)

    return before
