"""Which bytes of a segment were checked against their CRC by this process."""

from bisect import bisect_right


class VerifiedRanges:
    """Ranges of positions, disjoint and ascending, and all that was appended since the start.

    Any thread may read; a range added by two threads at once may be lost, which costs checking it
    again.
    """

    __slots__ = ("_appended_from", "_ranges")

    def __init__(self, appended_from: int) -> None:
        self._appended_from = appended_from  # from there on batches are checked as they arrive
        self._ranges: tuple[tuple[int, int], ...] = ()

    def cover(self, start: int, end: int) -> bool:
        """Whether all of ``start`` to ``end`` was checked."""
        end = min(end, self._appended_from)
        if start >= end:
            return True
        ranges = self._ranges
        index = bisect_right(ranges, start, key=_start) - 1
        return index >= 0 and end <= ranges[index][1]

    def add(self, start: int, end: int) -> None:
        """``start`` to ``end`` is checked now."""
        if start >= end:
            return
        merged: list[tuple[int, int]] = []
        for known in self._ranges:
            if known[1] < start or known[0] > end:
                merged.append(known)
            else:
                start, end = min(start, known[0]), max(end, known[1])
        merged.append((start, end))
        self._ranges = tuple(sorted(merged))

    def truncate(self, size: int) -> None:
        """The file ends at ``size`` now."""
        self._appended_from = min(self._appended_from, size)
        self._ranges = tuple((s, min(e, size)) for s, e in self._ranges if s < size)


def _start(known: tuple[int, int]) -> int:
    return known[0]
