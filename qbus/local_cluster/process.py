"""A node as a child process, with a file that holds its process id."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from qbus.service.files import replace_file

_PR_SET_PDEATHSIG = 1
_LOG_TAIL = 2000


class NodeProcess:
    """The process of a node. It is killed when the process that started it exits in any way."""

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
        """Start the process and write its process id."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C must not reach the nodes: they are stopped in order.
                start_new_session=True,
                preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - no threads here yet
            )
        replace_file(self._pid_file, b"%d\n" % self._process.pid, durable=False)

    def exit_code(self) -> int | None:
        """The exit code (negative: a signal), once after the exit; None before and afterwards."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._forget()
        return code

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, timeout: float) -> bool:
        """Wait for the exit; kill the process after ``timeout`` seconds and return False."""
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
        """Send SIGKILL and wait for the exit."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        self._process = None
        self._pid_file.unlink(missing_ok=True)


def running_pid(pid_file: Path, directory: Path) -> int | None:
    """The process id in ``pid_file``; None if no such process of the cluster runs.

    Process ids are reused: a node of the cluster has ``directory`` in its command line.
    """
    try:
        pid = int(pid_file.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    prefix = os.fsencode(directory) + b"/"
    return pid if any(argument.startswith(prefix) for argument in arguments) else None


def log_tail(path: Path) -> str:
    """The end of a log file."""
    try:
        return path.read_text(errors="replace")[-_LOG_TAIL:].strip()
    except OSError:
        return ""


def _dying_with(parent: int) -> Callable[[], None] | None:
    """Return a function for the child to run before exec: it dies with ``parent`` (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    set_option = ctypes.CDLL(None).prctl  # loaded here: not between fork and exec

    def before() -> None:
        set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has exited already
            os._exit(1)

    return before
