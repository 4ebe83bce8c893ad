"""The records that have arrived in a topic."""

import time
from collections.abc import Callable, Iterable
from typing import Self

from qbus import Consumer

_PATIENCE_S = 60.0


class Arrivals:
    """Reads a topic from its start; values in the order of each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 2) -> None:
        self._consumer = Consumer(bootstrap)
        self._consumer.assign([(topic, index, 0) for index in range(partitions)])
        self.values: list[bytes] = []
        self.seen: set[bytes] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def until(self, condition: Callable[[], object]) -> None:
        """Read until it holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{len(self.values)} values have arrived"
            self._read(0.1)

    def has(self, count: int) -> bool:
        """Whether at least ``count`` values have arrived."""
        return len(self.values) >= count

    def have(self, values: Iterable[bytes]) -> None:
        """Read until all of those are there."""
        wanted = set(values)
        self.until(lambda: wanted <= self.seen)

    def rest(self) -> None:
        """Read what else is there."""
        ends = self._consumer.end_offsets(self._consumer.assignment)
        self.until(lambda: len(self.values) >= sum(ends.values()))

    def _read(self, timeout: float) -> list[bytes]:
        found = [record.value or b"" for part in self._consumer.poll(timeout) for record in part]
        self.values += found
        self.seen.update(found)
        return found
