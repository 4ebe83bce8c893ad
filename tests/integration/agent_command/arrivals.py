"""What has arrived in a topic."""

import time
from collections.abc import Callable, Iterable
from typing import Self

from qbus import Consumer

_PATIENCE_S = 60.0
_PARTITIONS = 2


class Arrivals:
    """Reads a topic from its start; values in the order of each partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(bootstrap)
        self._consumer.assign([(topic, index, 0) for index in range(_PARTITIONS)])
        self.values: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def until(self, condition: Callable[[], object]) -> None:
        """Read until it holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{len(self.values)} values have arrived"
            for part in self._consumer.poll(0.1):
                self.values += [record.value or b"" for record in part]

    def has(self, count: int) -> bool:
        """Whether so many have arrived."""
        return len(self.values) >= count

    def have(self, values: Iterable[bytes]) -> None:
        """Read until all of those are there."""
        missing = set(values)
        seen = 0

        def is_complete() -> bool:
            nonlocal seen
            missing.difference_update(self.values[seen:])
            seen = len(self.values)
            return not missing

        self.until(is_complete)

    def rest(self) -> None:
        """Read what else is there."""
        while found := self._consumer.poll(0.3):
            for part in found:
                self.values += [record.value or b"" for record in part]
