"""How requests that change many things are told in the broker's log."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_MOST: Final = 100
"""Things that a line names. A line for each takes longer than to change them, and one of all the
100,000 that a request may name is megabytes long."""


def in_lines(changed: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield what each line tells of."""
    for start in range(0, len(changed), _MOST):
        yield changed[start : start + _MOST]
