"""A producer's lock, and the short way past it for what is sent most: a value alone."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Place:
    """Where a record is: in a batch, at an index there."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Any, index: int) -> None:
        self._batch = batch
        self._index = index


class Lane(Generic[T]):
    """A lock, and while nobody holds it a way to add a value to a batch.

    ``batches``: by topic those that take values, if their ``is_quick`` says so; their ``size`` is
    about how many bytes they have, ``values`` a list. Whoever does anything else with such a batch
    holds the lock. ``callbacks`` has what to call for those values for which there is something,
    and None for those before them for which there is not.
    """

    __slots__ = ("_limit", "_lock", "_make", "_overhead", "batches")

    def __init__(self, lock: Any, limit: int, overhead: int, make: Callable[[Any, int], T]) -> None:
        """lock: a ``threading.Lock`` that nobody holds.

        limit: how many bytes a batch may have; overhead: those of a value beside its own.
        make: what :meth:`add` returns, made of a batch and the index there.
        """
        self.batches: dict[str, Any] = {}
        self._limit = limit
        self._overhead = overhead
        self._make = make
        self.renew(lock)

    def renew(self, lock: Any) -> None:
        """Forget the batches, and whoever holds the lock: another one takes its place."""
        self._lock = lock
        self.batches.clear()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As that of a Lock."""
        return bool(self._lock.acquire(blocking, timeout))

    def release(self) -> None:
        """As that of a Lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def add(
        self, topic: str, value: object, callback: Callable[[T], object] | None = None
    ) -> T | None:
        """Add a value to the batch of its topic.

        None if there is no such batch, or no room, or if it is no bytes: there is the long way.
        """
        if type(value) is not bytes:
            return None
        with self._lock:
            batch = self.batches.get(topic)
            if batch is None or not batch.is_quick:
                return None
            size = batch.size + len(value) + self._overhead
            if size > self._limit:
                return None
            batch.size = size
            values = batch.values
            index = len(values)
            values.append(value)
            if callback is not None:
                callbacks = batch.callbacks
                callbacks += [None] * (index - len(callbacks))
                callbacks.append(callback)
        return self._make(batch, index)
