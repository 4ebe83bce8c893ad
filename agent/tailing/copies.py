"""Copies of files that are shipped already: what a rotation copied, or packed. Pure.

``copytruncate`` copies a log and empties it; others pack what was rotated and delete it. Where a
path matches the copy it is a new file, with old content. It is known by its name, which is the
original's with more to it, by its head, and by the bytes before the place up to where the original
was delivered. It waits until the original has ended, and goes on from there: so nothing is shipped
twice, and what the original lost with its end is had from the copy.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from ..positions.position import Fingerprint

_SUFFIX = re.compile(r"(\.gz|[.-]\d[\d_T:-]*|\.old|\.bak)$")
_DATE = re.compile(r"-\d{8,}(?=\.[a-z]+$)")


class Verdict(Enum):
    """What a new file is to another one."""

    OTHER = auto()
    """Nothing."""
    WAITING = auto()
    """Perhaps its copy: to be looked at again."""
    COPY = auto()
    """Its copy, to be read from where it ended."""


@dataclass(frozen=True, slots=True)
class Original:
    """A file as far as it was delivered, up to ``offset``, with ``tail`` before it (length, CRC).

    is_read: nothing is in it now that was not read. has_ended: nothing more comes out of it.
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
) -> Verdict:
    """Tell whether a file that begins with ``head`` is a copy.

    least: so many bytes have to be alike, or nothing is said by that. has_tail: whether the bytes
    before an offset are those; None: it is not that long yet.
    """
    if not original.fingerprint.length or not original.fingerprint.matches(head):
        return Verdict.OTHER
    if original.offset <= least:
        return Verdict.OTHER if original.is_read or original.has_ended else Verdict.WAITING
    is_alike = has_tail(original.offset, original.tail)
    if is_alike is None:
        return Verdict.OTHER if original.has_ended else Verdict.WAITING
    if not is_alike:
        return Verdict.OTHER
    return Verdict.COPY if original.has_ended else Verdict.WAITING


def stem(name: str) -> str:
    """What is left of a name without that which rotations add to it."""
    name = _DATE.sub("", name)
    while (shorter := _SUFFIX.sub("", name)) != name and shorter:
        name = shorter
    return name
