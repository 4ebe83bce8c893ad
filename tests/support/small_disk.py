"""A file system of its own that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CannotMountError(Exception):
    """No file system can be mounted here; the message says why."""


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """Mount ``size`` (``48m``) of memory on a new ``directory``; raises CannotMountError."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotMountError("mount is not installed") from None
    if done.returncode:
        reason = done.stderr.strip()
        raise CannotMountError(f"a small disk needs the right to mount: {reason}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)
