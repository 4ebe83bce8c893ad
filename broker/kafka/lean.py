"""The lean way of the commonest requests: one batch to append, or to read from the page cache.

Whatever is not that (more partitions, another form, an error, a wait for records or for a disk) is
None here, before anything has changed, and goes the general way: what a client is told of it is
decided there alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError
from qbus.records.header import ATTRIBUTES_AT, TRANSACTIONAL
from qbus.wire import ApiKey
from qbus.wire.lean import (
    FETCH_TRAILER,
    IS_BUILT,
    fetched,
    produced,
    read_fetch,
    read_produce,
)

from ..authorization import AccessControl, Operation
from ..authorization import topic as topic_resource
from ..log import LogSlice
from ..log.recompression import PRODUCER
from ..net.peer import Peer
from ..net.transport import SENDFILE_FROM, Region
from ..partition.partition import ACKS_ALL, Partition
from ..partition.purgatory import Delayed
from . import lean_transaction
from .fetch_reader import to_send
from .lean_answers import DelayedAnswer, Parts
from .lean_commit import commit

if TYPE_CHECKING:
    from ..broker import Broker

_READ: Final = Operation.READ
_WRITE: Final = Operation.WRITE


def produce(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None, _limit: int
) -> Parts | Delayed[Parts] | None:
    """Append the one batch of a Produce request, and answer as ``acks`` asks for.

    ``access``: what is asked whether the client may, if anything is restricted.
    """
    request = read_produce(frame)
    if request is None:
        return lean_transaction.produce(broker, frame, peer, access)
    version, correlation_id, acks, timeout_ms, topic, index, batch = request
    if acks not in {ACKS_ALL, 1}:
        return None
    replicas = broker.replicas
    partition = replicas.get_partition(topic, index)
    if (
        partition is None
        or (access is not None and not _may(access, peer, _WRITE, topic, partition))
        or not _takes_as_is(broker, partition, batch)
    ):
        return None
    try:
        info = partition.append(batch, acks)
    except ApiError:  # nothing was appended; the general way says what is wrong
        return None
    if acks == ACKS_ALL and partition.high_watermark <= info.last_offset:
        purgatory = replicas.purgatory
        delayed = DelayedAnswer(purgatory.loop, version, correlation_id, topic, index, info)
        partition.when_acknowledged(info.last_offset + 1, delayed, None)
        if not delayed.done():
            purgatory.produces.add(delayed, max(timeout_ms / 1000, 0.0))
        return delayed
    return [
        produced(
            version,
            correlation_id,
            topic,
            index,
            0,
            info.first_offset,
            info.log_append_time,
            info.log_start_offset,
        )
    ]


def _takes_as_is(broker: "Broker", partition: Partition, batch: memoryview) -> bool:
    """Whether the log gets the batch as it came: not compressed anew, nothing of it held back.

    One of a transaction needs a transactional id, which no plain request has. Nor are the keys of
    records looked at, as in compacted topics.
    """
    if len(batch) > ATTRIBUTES_AT and batch[ATTRIBUTES_AT] & TRANSACTIONAL:
        return False
    config = partition.log.config
    return (
        config.compression_type == PRODUCER
        and not config.compacts
        and not (config.qbus_delay_enable and broker.delays.may_hold(batch))
    )


def fetch(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None, limit: int
) -> Parts | None:
    """Read the one partition of a Fetch request, if what is asked for can be sent at once.

    ``access`` as of :func:`produce`. ``limit``: how many bytes of records the client's quota
    leaves, besides the first batch.
    """
    request = read_fetch(frame)
    if request is None:
        return None
    version, correlation_id, least, most, is_committed, topic, index = request[:7]
    leader_epoch, offset, partition_most = request[7:]
    replicas = broker.replicas
    partition = replicas.get_partition(topic, index)
    if (
        partition is None
        or (access is not None and not _may(access, peer, _READ, topic, partition))
        or partition.check(leader_epoch)
    ):
        return None
    log = partition.log
    high_watermark, log_start = partition.visible_end, log.log_start_offset
    stable = high_watermark
    if log.has_transactions:
        if is_committed:  # it is to be told of aborted ones
            return None
        stable = partition.committed_end
    if not log_start <= offset < high_watermark:
        return None
    most = min(partition_most, most, replicas.fetch_max_bytes, limit)
    records = _cached(partition, offset, most)
    if records is None or len(records) < min(least, limit):
        return None
    size = len(records)
    partition.bytes_out += size
    head = fetched(
        version,
        correlation_id,
        topic,
        index,
        (high_watermark, stable, log_start),
        size,
        is_committed=is_committed,
    )
    return [head, records, FETCH_TRAILER]


def _may(
    access: AccessControl,
    peer: Peer,
    operation: Operation,
    topic: str | bytes,
    partition: Partition,
) -> bool:
    """Whether a client may read or write, and nobody wants this request recorded.

    ``topic``: the partition's, by name or id as the request has it.
    """
    grants = access.grants_of(peer)
    granted = grants.readable if operation is _READ else grants.writable
    if topic not in granted:
        if not access.allows_peer(peer, operation, topic_resource(partition.topic)):
            return False
        granted.add(topic)
    return not access.is_record_due


def _cached(partition: Partition, offset: int, most: int) -> Region | bytes | None:
    """The records from ``offset`` on, if sending them waits for no disk."""
    try:
        records = partition.log.read_visible(offset, max(most, 0), partition.visible_end)
        if records is None or records.needs_verification:
            return None
        if isinstance(records, LogSlice) and records.length < SENDFILE_FROM:
            data = records.read(wait=False)  # which saves asking whether it would wait
            return data if len(data) == records.length else None
        return to_send(records) if records.is_cached() else None
    except (ApiError, OSError):
        return None


Answer = Callable[
    ["Broker", memoryview, Peer, "AccessControl | None", int],
    Parts | Delayed[Parts] | None,
]

LEAN: Final[dict[int, Answer]] = (
    {
        ApiKey.PRODUCE.value: produce,
        ApiKey.FETCH.value: fetch,
        ApiKey.OFFSET_COMMIT.value: commit,
        ApiKey.END_TXN.value: lean_transaction.end,
    }
    if IS_BUILT
    else {}
)
"""What answers the plain requests of an API, by its key."""
