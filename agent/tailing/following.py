"""What to make of a file that was looked at again. Pure."""

from enum import Enum, auto

from .identity import Fingerprint


class Change(Enum):
    """What happened to a file since it was last read."""

    NONE = auto()
    GROWN = auto()
    RESTARTED = auto()
    """It was truncated, or its inode is another file's now: it is read from the start."""


def compare(read: int, size: int, fingerprint: Fingerprint, head: bytes) -> Change:
    """Tell what happened to a file that was read up to ``read``.

    size: what it has now, in bytes. head: what it begins with, at least as much as the fingerprint
    is of if there is that much.
    """
    if size < read or not fingerprint.matches(head):
        return Change.RESTARTED
    return Change.GROWN if size > read else Change.NONE


def flush_after(*, is_left: bool, has_lines: bool, partial: float, lines: float) -> float | None:
    """Seconds of silence after which what is unfinished is taken for whole; None: never.

    is_left: its writer has left the file, for it was renamed or deleted. has_lines: the rest holds
    whole lines, that may be a record. partial, lines: what each of the two is given.
    """
    if is_left:
        return min(partial, lines) if has_lines else partial
    return lines if has_lines else None
