"""A producer's lock with a fast path, which puts most records into their batches."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .lists import partition_for_keys

T = TypeVar("T")
_MAX_TIMESTAMP = 2**63 - 1


class BatchSlot:
    """The place of a record: a batch and an index in it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Any, index: int) -> None:
        self._batch = batch
        self._index = index


class BatchLists:
    """The records of a batch that is being filled: a list for each part; one index is one record.

    There is no list of keys until a record has one; likewise headers and timestamps.

    callbacks: called for each record when the batch is complete, or None; trailing ones may be
        missing.
    size: approximate bytes.
    is_quick: the fast path may append to it.
    is_movable: any other partition would do as well.
    """

    __slots__ = (
        "callbacks",
        "headers",
        "is_movable",
        "is_quick",
        "keys",
        "size",
        "timestamps",
        "values",
    )

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.keys: list[Any] | None = None
        self.headers: list[Any] | None = None
        self.timestamps: list[int | None] | None = None
        self.callbacks: list[Callable[[Any], object] | None] = []
        self.size = 0
        self.is_quick = False
        self.is_movable = False


class OpenBatches:
    """The batches of a topic that records are added to.

    sticky: the batch for records that may go to any partition.
    by_partition: the batch of each partition.
    is_by_key: keys decide about the partition; otherwise only those that are given one are added.
    """

    __slots__ = ("by_partition", "is_by_key", "sticky")

    def __init__(self, partitions: int, is_by_key: bool) -> None:
        self.sticky: BatchLists | None = None
        self.by_partition: list[BatchLists | None] = [None] * partitions
        self.is_by_key = is_by_key


class AppendLock(Generic[T]):
    """A lock, and a fast path that appends a record to a batch while nobody holds the lock.

    ``topics`` has the open batches of each topic, ``buffered`` counts the bytes of all batches.
    Everything else that touches such a batch holds the lock.
    """

    __slots__ = (
        "_batch_limit",
        "_buffer_limit",
        "_lock",
        "_make",
        "_overhead",
        "buffered",
        "topics",
    )

    def __init__(
        self,
        lock: Any,
        batch_limit: int,
        buffer_limit: int,
        overhead: int,
        make: Callable[[Any, int], T],
    ) -> None:
        """Wrap ``lock``, a ``threading.Lock`` that nobody holds.

        batch_limit: the maximum size of a batch in bytes.
        buffer_limit: the bytes of all batches from which on nothing is added.
        overhead: bytes of a record besides key, value and headers, and of a header besides its
            name and value.
        make: a subclass of BatchSlot, of which :meth:`add` returns an instance.
        """
        self.topics: dict[str, OpenBatches] = {}
        self.buffered = 0
        self._batch_limit = batch_limit
        self._buffer_limit = buffer_limit
        self._overhead = overhead
        self._make = make
        self.renew(lock)

    def renew(self, lock: Any) -> None:
        """Drop the batches and use another lock, which nobody holds."""
        self._lock = lock
        self.topics.clear()

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
        self,
        topic: Any,
        value: Any,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp: Any = None,
        callback: Callable[[T], object] | None = None,
    ) -> T | None:
        """Append a record to the open batch of its partition.

        Returns None if there is no such batch, if it has no room or no list for a part of the
        record, if the buffer is full, or if a part is not of the plainest type: ``bytes``, ``int``,
        a list or tuple of pairs of ASCII ``str`` and ``bytes``. The caller then takes the lock,
        checks the record and adds it itself.
        """
        size = self._size(value, key, headers)
        if size is None or type(topic) is not str or not _is_plain_timestamp(timestamp):
            return None
        with self._lock:
            batch = self._batch(topic, key, partition)
            if batch is None or not batch.is_quick or self.buffered >= self._buffer_limit:
                return None
            if batch.size + size > self._batch_limit or not _has_lists(
                batch, key, headers, timestamp
            ):
                return None
            index = _append(batch, value, key, headers or None, timestamp, callback)
            batch.size += size
            self.buffered += size
            if partition is not None or key is not None:
                batch.is_movable = False
        return self._make(batch, index)

    def _size(self, value: Any, key: Any, headers: Any) -> int | None:
        """Return the size of a record of the plainest types; None for others."""
        extra = 0 if headers is None else _headers_size(headers, self._overhead)
        if extra is None or not (_is_plain(value) and _is_plain(key)):
            return None
        return self._overhead + len(value or b"") + len(key or b"") + extra

    def _batch(self, topic: str, key: bytes | None, partition: Any) -> BatchLists | None:
        opened = self.topics.get(topic)
        if opened is None:
            return None
        batches = opened.by_partition
        if partition is not None:
            is_one = type(partition) is int and 0 <= partition < len(batches)
            return batches[partition] if is_one else None
        if not opened.is_by_key:
            return None
        if key is None:
            return opened.sticky
        return batches[partition_for_keys((key,), len(batches))[0]] if batches else None


def _is_plain(item: object) -> bool:
    return item is None or type(item) is bytes


def _is_plain_timestamp(timestamp: object) -> bool:
    return timestamp is None or (type(timestamp) is int and -1 <= timestamp <= _MAX_TIMESTAMP)


def _headers_size(headers: Any, overhead: int) -> int | None:
    """Return the size of headers of the plainest types; None for others."""
    if type(headers) is not list and type(headers) is not tuple:
        return None
    size = 0
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2:
            return None
        name, data = pair
        if type(name) is not str or not name.isascii() or not _is_plain(data):
            return None
        size += overhead + len(name) + len(data or b"")
    return size


def _has_lists(
    batch: BatchLists, key: object, headers: Sequence[object] | None, timestamp: object
) -> bool:
    return (
        (key is None or batch.keys is not None)
        and (not headers or batch.headers is not None)
        and (timestamp is None or batch.timestamps is not None)
    )


def _append(
    batch: BatchLists, value: Any, key: Any, headers: Any, timestamp: Any, callback: Any
) -> int:
    """Append a record for whose parts the batch has lists; return its index."""
    index = len(batch.values)
    if batch.keys is not None:
        batch.keys.append(key)
    if batch.headers is not None:
        batch.headers.append(headers)
    if batch.timestamps is not None:
        batch.timestamps.append(timestamp)
    batch.values.append(value)
    if callback is not None:
        batch.callbacks += [None] * (index - len(batch.callbacks))
        batch.callbacks.append(callback)
    return index
