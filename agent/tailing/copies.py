"""Recognizing copies of files that were shipped: made by a rotation that copies or packs. Pure.

``copytruncate`` copies a log and truncates it; other rotations pack a log and delete it. If a path
matches the copy, it is a new file with old content. It is recognized by its name, which is the
original's with an addition, by its head, and by the bytes before the original's position. It waits
until the original has ended and goes on from that position: nothing is shipped twice, and what the
original lost by truncation is read from the copy.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from ..positions.position import Fingerprint

_SUFFIX = re.compile(r"(\.gz|[.-]\d[\d_T:-]*|\.old|\.bak)$")
_DATE = re.compile(r"-\d{8,}(?=\.[a-z]+$)")


class Verdict(Enum):
    """The relation of a new file to another one."""

    OTHER = auto()
    """It is not a copy."""
    WAITING = auto()
    """It may be a copy: judge again later."""
    COPY = auto()
    """It is a copy: read it from the original's position."""


@dataclass(frozen=True, slots=True)
class Original:
    """A file that is delivered up to ``offset``, with ``tail`` before it (length, CRC-32).

    is_read: everything in it was read. has_ended: nothing more will be read from it.
    """

    fingerprint: Fingerprint
    offset: int
    tail: tuple[int, int]
    is_read: bool
    has_ended: bool


def judge(
    original: Original,
    head: bytes,
    least: int,
    has_tail: Callable[[int, tuple[int, int]], bool | None],
    is_partial: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Return whether a file that begins with ``head`` is a copy.

    least: the fewest equal bytes that prove anything. has_tail: whether the bytes before an offset
    have that tail; None: the file is not that long yet. is_partial: whether more of the file is
    sure to be written, as of a gzip file without its trailer; asked after a read met its end.
    """
    if not original.fingerprint.length:
        return Verdict.OTHER
    if not original.fingerprint.matches(head):
        is_short = len(head) < original.fingerprint.length
        return Verdict.WAITING if is_short and is_partial() else Verdict.OTHER
    if original.offset <= least:
        return Verdict.OTHER if original.is_read or original.has_ended else Verdict.WAITING
    is_alike = has_tail(original.offset, original.tail)
    if is_alike is None:
        return Verdict.OTHER if original.has_ended and not is_partial() else Verdict.WAITING
    if not is_alike:
        return Verdict.OTHER
    return Verdict.COPY if original.has_ended else Verdict.WAITING


def stem(name: str) -> str:
    """Return a file name without what rotations append to it."""
    name = _DATE.sub("", name)
    while (shorter := _SUFFIX.sub("", name)) != name and shorter:
        name = shorter
    return name
