"""Writing small files so that a crash leaves the old content or the new one, never a mixture.

All functions raise OSError. Durable ones block for as long as the disk takes: event loops call them
in a thread.
"""

import os
from pathlib import Path


def write_all(file: int, position: int, data: bytes | bytearray) -> None:
    """Write all of ``data`` at ``position``; one system call may write only a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        position += written
        view = view[written:]


def sync_directory(path: Path) -> None:
    """Return when the directory's entries (created, renamed, removed) are on stable storage."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def replace_file(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
    """Replace the content of ``path`` atomically, or create it.

    ``durable``: the new content is on stable storage on return. Without it, a crash of the process
    leaves the old content or the new one; a crash of the system may leave the file damaged.
    ``mode``: who may read it; 0o600 for secrets.
    """
    os.close(rename_over(path, content, durable=durable, mode=mode))
    if durable:
        sync_directory(path.parent)


def rename_over(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o644) -> int:
    """Replace ``path`` and return the new file, open for reading and writing.

    For callers that keep the file open. The directory is not synced. The temporary file is
    ``<path>.tmp``; a failure may leave it behind, and the next call overwrites it.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        if mode != 0o644:
            os.fchmod(file, mode)  # one that was left behind may have another
        write_all(file, 0, content)
        if durable:
            os.fdatasync(file)
        temporary.replace(path)
    except OSError as error:
        os.close(file)
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # which a write or a sync does not tell
        raise
    return file
