"""The log file that the demo ships: a real one, found on this machine."""

import codecs
import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: Where text is found when a machine, such as a fresh container, keeps no log.
FALLBACKS = (Path("/var/lib/dpkg"), Path("/usr/share/doc"))

_HEAD = 64 * 1024

#: A demo takes seconds: the largest log is the largest one up to this many bytes.
MAX_SIZE = 1_000_000_000


def find_log(root: Path = Path("/var/log"), max_size: int = MAX_SIZE) -> Path | None:
    """Return the largest readable text file below ``root``, else below the fallbacks."""
    for directory in (root, *FALLBACKS):
        for _, path in sorted(_candidates(directory, max_size), reverse=True):
            if is_text(path):
                return path
    return None


def is_text(path: Path) -> bool:
    """Whether the head of a file can be read and is UTF-8 without NUL bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if not head or b"\0" in head:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(head, final=len(head) < _HEAD)  # a longer file's head may end mid-character
    except UnicodeDecodeError:
        return False
    return True


def _candidates(directory: Path, max_size: int) -> Iterator[tuple[int, Path]]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= max_size:
                yield status.st_size, path
