"""Processes that a test starts: they can be interrupted, and none outlives its test."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def restore_interrupts() -> None:
    """Let SIGINT interrupt this process and those that it starts.

    A shell's background job starts with SIGINT ignored, and its children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def child(command: Sequence[str], **options: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """Run ``command`` with the options of Popen; kill it on exit if it still runs."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
