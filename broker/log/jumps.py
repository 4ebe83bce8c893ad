"""Gaps that are wider than the offsets of one segment reach.

Every segment begins where the one before it ends, so that a lost file, or a lost end of one, shows.
An index holds offsets relative to its segment's first one, in 31 bits. Where a gap goes beyond
that, an empty segment stands for it: the one after it begins behind the gap. That the two belong
together says the name of an empty file, ``<offset>-<offset behind the gap>.jump``: a segment that a
crash emptied has none.
"""

import re

from .files import Files
from .segment import LogSegment

MAX_RELATIVE_OFFSET = 2**31 - 1

_JUMP = re.compile(r"(\d{20})-(\d{20})\.jump")


def mark_jump(files: Files, segment: LogSegment, offset: int) -> None:
    """Let ``segment``, which is empty, stand for a gap up to ``offset``. Raises OSError."""
    files.open(_path(segment, offset), write=True)


def is_jump(files: Files, segment: LogSegment, offset: int) -> bool:
    """Whether ``segment`` stands for a gap up to ``offset``, with which the next one begins."""
    return segment.gaps and not segment.size and files.exists(_path(segment, offset))


def is_left_over(name: str, bases: set[int]) -> bool:
    """Whether a file is a jump's that is no more, as there are only segments with these offsets."""
    match = _JUMP.fullmatch(name)
    return match is not None and not {int(match[1]), int(match[2])} <= bases


def _path(segment: LogSegment, offset: int) -> str:
    return f"{segment.directory}/{segment.base_offset:020d}-{offset:020d}.jump"
