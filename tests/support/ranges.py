"""Ranges of offsets, as tests compare them."""

from typing import Any

from qbus.broker.queues.ranges import RangeMap


def spans(ranges: RangeMap[Any]) -> list[tuple[int, int, Any]]:
    """The ranges that have a value, ascending, with their values."""
    return [(span.first, span.last, span.value) for span in ranges]
