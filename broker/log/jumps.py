"""Gaps that are wider than the offsets of one segment reach.

Every segment begins where the one before it ends, so that a lost file, or a lost end of one, shows.
An index holds offsets relative to its segment's first one, in 31 bits. Where a gap goes beyond
that, an empty segment stands for it: the one after it begins behind the gap.
"""

from .segment import LogSegment

MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_DELTA_AFTER_GAP = 2**30
"""How many offsets a batch may span that a gap may lie before; so that a jump is that wide, too."""


def is_jump(segment: LogSegment, offset: int) -> bool:
    """Whether ``segment`` stands for a gap up to ``offset``, with which the next one begins."""
    least = MAX_RELATIVE_OFFSET - MAX_DELTA_AFTER_GAP
    return segment.gaps and not segment.size and offset - segment.base_offset >= least
