"""Which offsets are archived: sets of numbers as sorted, disjoint intervals."""

from collections.abc import Iterable, Mapping

Intervals = tuple[tuple[int, int], ...]
"""Each from the first number to that after the last; in order, with gaps between them."""

Coverage = Mapping[tuple[str, int], Intervals]
"""Of each topic and partition."""


def union(*parts: Iterable[tuple[int, int]]) -> Intervals:
    """All that is in one of them."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(interval for part in parts for interval in part):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def common(one: Intervals, other: Intervals) -> Intervals:
    """All that is in both."""
    parts = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return union(parts)
