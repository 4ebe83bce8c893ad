"""A producer's lock with a fast path for most records: those that have only a value."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BatchSlot:
    """The place of a record: a batch and an index in it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Any, index: int) -> None:
        self._batch = batch
        self._index = index


class AppendLock(Generic[T]):
    """A lock, and a fast path that appends a value to a batch while nobody holds the lock.

    ``batches`` has the open batch of each topic. The fast path appends to a batch if its
    ``is_quick`` is true; it uses the batch's approximate ``size`` in bytes and the lists ``values``
    and ``callbacks``. ``callbacks`` may be shorter than ``values``; a value without a callback has
    None. Everything else that touches such a batch holds the lock.
    """

    __slots__ = ("_limit", "_lock", "_make", "_overhead", "batches")

    def __init__(self, lock: Any, limit: int, overhead: int, make: Callable[[Any, int], T]) -> None:
        """Wrap ``lock``, a ``threading.Lock`` that nobody holds.

        ``limit`` is the maximum size of a batch in bytes. Each value has ``overhead`` bytes besides
        its own. ``make`` creates what :meth:`add` returns from a batch and an index in it.
        """
        self.batches: dict[str, Any] = {}
        self._limit = limit
        self._overhead = overhead
        self._make = make
        self.renew(lock)

    def renew(self, lock: Any) -> None:
        """Drop the batches and use another lock, which nobody holds."""
        self._lock = lock
        self.batches.clear()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, as ``threading.Lock`` does."""
        return bool(self._lock.acquire(blocking, timeout))

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def add(
        self, topic: str, value: object, callback: Callable[[T], object] | None = None
    ) -> T | None:
        """Add a value to the batch of its topic.

        Returns None if there is no such batch, if it has no room, or if the value is not bytes. The
        caller then takes the lock and adds the record itself.
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
