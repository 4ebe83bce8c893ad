"""The lean way of transactions whose coordinator is this broker: one batch, and the end.

Where anything is unusual the request goes the general way, as in :mod:`.lean`: at once, or once the
coordinator refused what it was asked, by which nothing changed.
"""

import logging
from struct import Struct as Packer
from typing import TYPE_CHECKING, Any, Final

from qbus.errors import ApiError, ErrorCode
from qbus.records.header import ATTRIBUTES_AT, TRANSACTIONAL, read_header
from qbus.wire.lean import LeanTransactional, read_end, read_transactional

from ..authorization import AccessControl, Operation, transactional_id
from ..authorization import topic as topic_resource
from ..log import AppendInfo, Verification
from ..log.recompression import PRODUCER
from ..net.peer import Peer
from ..partition.partition import ACKS_ALL, Partition
from ..partition.purgatory import Delayed
from ..transaction import EPOCH_PER_TRANSACTION, Participants
from .lean_answers import DelayedAnswer, Parts, RepeatableAnswer, produce_answer

if TYPE_CHECKING:
    from ..broker import Broker

_log = logging.getLogger(__name__)

_TAIL: Final = 3  # bytes behind the batch: no tags of the partition, the topic, the request
_FIRST_THAT_ADDS: Final = 12  # of Produce: it adds partitions to their transactions
_FIRST_WITH_EPOCHS: Final = 5  # of EndTxn
_OLD_CLIENT: Final = 1

# Length, correlation id, no tags, throttle time, error; the producer's next id and epoch; no tags.
_ENDED: Final = Packer(">iiBihB")
_ENDED_WITH_EPOCH: Final = Packer(">iiBihqhB")
_PREFIX: Final = 4


def produce(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None
) -> Parts | Delayed[Parts] | None:
    """Append the one batch of a transaction; its coordinator is asked where it is the first."""
    request = read_transactional(frame)
    if request is None:
        return None
    version, correlation_id, acks, timeout_ms, topic, index, batch, name = request
    partition = broker.replicas.get_partition(topic, index)
    if (
        partition is None
        or acks != ACKS_ALL
        or not _takes_as_is(partition, batch)
        or (access is not None and not _may_write(access, peer, name, partition.topic))
    ):
        return None
    try:
        header = read_header(batch)
        producer = header.producer_id, header.producer_epoch
        adds = version >= _FIRST_THAT_ADDS
        verification = partition.begin_verification(
            *producer, header.base_sequence, begins_with_zero=adds
        )
        if verification is not None:
            if not broker.transactions.log.is_led(name):  # before the batch is copied
                return None
            first = FirstBatch(broker, frame, peer, access, request, partition, verification)
            place = partition.topic, index
            is_asked = broker.transactions.begin_to_ask(name, producer, place, first, add=adds)
            return first if is_asked else None
        info = partition.append(batch, ACKS_ALL)
    except ApiError:  # nothing was appended; the general way says what is wrong
        return None
    purgatory = broker.replicas.purgatory
    delayed = DelayedAnswer(purgatory.loop, version, correlation_id, topic, index, info)
    if partition.high_watermark > info.last_offset:
        delayed.acknowledged(None, ErrorCode.NONE)
    else:
        partition.when_acknowledged(info.last_offset + 1, delayed, None)
        if not delayed.done():
            purgatory.produces.add(delayed, max(timeout_ms / 1000, 0.0))
    return delayed


def _takes_as_is(partition: Partition, batch: memoryview) -> bool:
    """Whether it is a transaction's batch, which the log gets as it came."""
    log = partition.log
    config = log.config
    return (
        len(batch) > ATTRIBUTES_AT
        and batch[ATTRIBUTES_AT] & TRANSACTIONAL != 0
        and config.compression_type == PRODUCER
        and not config.compacts
        and not config.qbus_delay_enable
        and not log.has_hidden
    )


def _may_write(access: AccessControl, peer: Peer, name: str, topic: str | None = None) -> bool:
    """Whether a client may write in the transaction, and nobody wants this request recorded.

    ``topic``: where it writes; None: it only ends the transaction.
    """
    return (
        access.allows_peer(peer, Operation.WRITE, transactional_id(name))
        and (topic is None or access.allows_peer(peer, Operation.WRITE, topic_resource(topic)))
        and not access.is_record_due
    )


class FirstBatch(RepeatableAnswer):
    """The first batch of a transaction in a partition, whose coordinator is being asked."""

    __slots__ = ("_batch", "_info", "_partition", "_request", "_verification")

    def __init__(
        self,
        broker: "Broker",
        frame: memoryview,
        peer: Peer,
        access: AccessControl | None,
        request: LeanTransactional,
        partition: Partition,
        verification: Verification,
    ) -> None:
        copied = memoryview(bytearray(frame))
        super().__init__(broker, copied, peer, access)
        end = len(copied) - _TAIL
        self._batch = copied[end - len(request[6]) : end]
        self._request = request
        self._partition = partition
        self._verification = verification
        self._info: AppendInfo | None = None

    def set_result(self, missing: Participants | None) -> None:
        """The coordinator has answered: what is no part of the transaction."""
        if not self.takes():
            return
        try:
            if missing is not None and (missing.partitions or missing.groups):
                self.repeat()
            else:
                self._append()
        except Exception as error:  # noqa: BLE001 - it comes from the client's request
            _log.exception("the first batch of a transaction cannot be appended")
            self.fail(error)

    def set_exception(self, error: ApiError) -> None:  # noqa: ARG002 - it comes again
        """The coordinator has refused it."""
        if self.takes():
            self.repeat()

    def _append(self) -> None:
        partition = self._partition
        if not _takes_as_is(partition, self._batch):  # the topic's settings are others by now
            self.repeat()
            return
        try:
            info = self._info = partition.append(self._batch, ACKS_ALL, self._verification)
        except ApiError:
            self.repeat()
            return
        if partition.high_watermark > info.last_offset:
            self.acknowledged(None, ErrorCode.NONE)
            return
        partition.when_acknowledged(info.last_offset + 1, self, None)
        if not self.done():
            timeout_ms = self._request[3]
            self.broker.replicas.purgatory.produces.add(self, max(timeout_ms / 1000, 0.0))

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """The batch is acknowledged (NONE), or never will be."""
        info = self._info
        assert info is not None
        version, correlation_id, _, _, topic, index, _, _ = self._request
        self.answer(produce_answer(version, correlation_id, topic, index, code, info))

    def expire(self) -> None:
        """Answer that the outcome is unknown: the batch is written."""
        self.acknowledged(None, ErrorCode.REQUEST_TIMED_OUT)


def end(
    broker: "Broker", frame: memoryview, peer: Peer, access: AccessControl | None, _limit: int
) -> Delayed[Parts] | None:
    """Decide how a transaction ends."""
    request = read_end(frame)
    if request is None:
        return None
    version, correlation_id, name, producer_id, epoch, is_commit = request
    if access is not None and not _may_write(access, peer, name):
        return None
    answer = EndAnswer(broker, frame, peer, access, version, correlation_id)
    is_asked = broker.transactions.begin_to_end(
        name,
        (producer_id, epoch),
        answer,
        commit=is_commit,
        client_version=EPOCH_PER_TRANSACTION if version >= _FIRST_WITH_EPOCHS else _OLD_CLIENT,
    )
    return answer if is_asked else None


class EndAnswer(RepeatableAnswer):
    """The answer to an EndTxn request of which the log is to say how it is decided."""

    __slots__ = ("_correlation_id", "_version")

    def __init__(
        self,
        broker: "Broker",
        frame: memoryview,
        peer: Peer,
        access: AccessControl | None,
        version: int,
        correlation_id: int,
    ) -> None:
        super().__init__(broker, memoryview(bytes(frame)), peer, access)
        self._version = version
        self._correlation_id = correlation_id

    def set_result(self, identity: Any) -> None:
        """It is decided: who the producer is in its next transaction."""
        if not self.takes():
            return
        if isinstance(identity, tuple):
            self._tell(ErrorCode.NONE, identity[0], identity[1])
        else:  # it needs a producer id that nobody has
            self.repeat()

    def set_exception(self, error: ApiError) -> None:
        """It is refused, or not acknowledged."""
        if not self.takes():
            return
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:  # which may be over soon
            self.repeat()
        else:
            self._tell(error.code, -1, -1)

    def _tell(self, code: ErrorCode, producer_id: int, epoch: int) -> None:
        correlation_id = self._correlation_id
        if self._version >= _FIRST_WITH_EPOCHS:
            size = _ENDED_WITH_EPOCH.size - _PREFIX
            frame = _ENDED_WITH_EPOCH.pack(size, correlation_id, 0, 0, code, producer_id, epoch, 0)
        else:
            frame = _ENDED.pack(_ENDED.size - _PREFIX, correlation_id, 0, 0, code, 0)
        self.answer([frame])
