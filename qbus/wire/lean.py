"""The commonest requests, read and answered in C, without a message for each of their parts.

These are a Produce of one batch to one partition, a consumer's Fetch of one partition, an
OffsetCommit and an EndTxn, in their flexible versions. What is not of exactly that form, be it
malformed or merely unusual, is None here and goes the general way (:mod:`qbus.wire.codec`). Where
nothing was compiled all requests do.
"""

import os
from typing import Final

from qbus.wire.api import API, ApiKey

REVISION: Final = 5
"""What the compiled form offers; another number means that it was built from other sources."""

FETCH_TRAILER: Final = b"\0\0\0"
"""What follows the records of an answer: no tags of the partition, the topic, the response."""

_PRODUCE_VERSION: Final = API[ApiKey.PRODUCE].max_version
_FETCH_VERSION: Final = API[ApiKey.FETCH].max_version
_END_VERSION: Final = API[ApiKey.END_TXN].max_version
_COMMIT_VERSION: Final = API[ApiKey.OFFSET_COMMIT].max_version


try:
    from qbus.wire import _lean
except ImportError:
    _revision = 0
else:
    _revision = _lean.REVISION

IS_BUILT: Final = _revision == REVISION and os.environ.get("QBUS_CODEC") != "python"
"""Whether the functions below can be called, except :func:`has_at`, which always can."""

LeanProduce = tuple[int, int, int, int, str | bytes, int, memoryview]
"""Version, correlation id, acks, time-out in ms, topic (name or id), partition, batch."""

LeanTransactional = tuple[int, int, int, int, str | bytes, int, memoryview, str]
"""The same, and the transactional id."""

LeanEnd = tuple[int, int, str, int, int, bool]
"""Version, correlation id, transactional id, producer id, epoch, whether it commits."""

LeanFetch = tuple[int, int, int, int, bool, str | bytes, int, int, int, int]
"""Version, correlation id, least and most bytes, whether only what is committed is wanted, topic
(name or id), partition, leader epoch, offset, most bytes of the partition."""

LeanTopic = tuple[str | bytes, bytes, int, int, int]
"""Of a topic that is committed: its name or id; the positions, one after the other: partition (4
bytes), offset (8), leader epoch (4), length of the metadata (2), the metadata; how many there are;
the largest partition, those below zero being the largest; and the length of the longest metadata.
"""

LeanCommit = tuple[int, int, str, int, str, str | None, list[LeanTopic], bytes]
"""Version, correlation id, group, generation, member, instance, what is committed by topic, and the
whole frame that answers that all of it is stored."""


def has_at(frame: memoryview, position: int, expected: bytes) -> bool:
    """Whether ``expected`` stands in a frame, from ``position`` on."""
    if not IS_BUILT:
        return frame[position : position + len(expected)] == expected
    return _lean.has_at(frame, position, expected)


def read_produce(frame: memoryview) -> LeanProduce | None:
    """Read a Produce request's frame, if it is plain. The batch is a view of it."""
    return _lean.read_produce(frame, _PRODUCE_VERSION)


def read_transactional(frame: memoryview) -> LeanTransactional | None:
    """Read a Produce request's frame that has a transactional id, and is plain otherwise."""
    return _lean.read_transactional(frame, _PRODUCE_VERSION)


def read_end(frame: memoryview) -> LeanEnd | None:
    """Read an EndTxn request's frame, if it is plain."""
    return _lean.read_end(frame, _END_VERSION)


def read_fetch(frame: memoryview) -> LeanFetch | None:
    """Read a Fetch request's frame, if it is plain."""
    return _lean.read_fetch(frame, _FETCH_VERSION)


def read_commit(frame: memoryview) -> LeanCommit | None:
    """Read an OffsetCommit request's frame, if it is plain: its texts are ASCII, it has topics."""
    return _lean.read_commit(frame, _COMMIT_VERSION)


def produced(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole frame that answers a plain Produce request."""
    return _lean.produced(
        version,
        correlation_id,
        topic,
        index,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
    )


def fetched(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    offsets: tuple[int, int, int],
    size: int,
    *,
    is_committed: bool,
) -> bytes:
    """What goes before ``size`` bytes of records and :data:`FETCH_TRAILER`.

    ``offsets``: the high watermark, the last stable offset, where the log starts.
    """
    return _lean.fetched(
        version,
        correlation_id,
        topic,
        index,
        *offsets,
        is_committed,
        size,
        len(FETCH_TRAILER),
    )
