"""What a spool does with files. Everything here raises OSError."""

import os
from pathlib import Path


def write_whole(file: int, position: int, data: bytes | bytearray) -> None:
    """Write all of ``data``, which one call to the system need not do."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        position += written
        view = view[written:]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old content or the new; stable on return."""
    temporary = path.with_name(f"{path.name}.tmp")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_whole(file, 0, content)
        os.fdatasync(file)
    finally:
        os.close(file)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on stable storage."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
