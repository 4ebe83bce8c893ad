"""A transaction coordinator of a few lines, for one fake broker that leads everything.

It keeps to Kafka's rules of transaction version 1 or 2 (KIP-98, KIP-360, KIP-890): who is fenced,
which partitions belong to a transaction, when epochs are raised.
"""

from collections.abc import Callable
from typing import Any

from qbus.errors import ErrorCode
from qbus.records import iter_records, read_header
from qbus.wire import ZERO_UUID, ApiKey
from qbus.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from qbus.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from qbus.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from qbus.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from .fake_broker import FakeBroker

Place = tuple[str, int]


class Entry:
    """One transactional id."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.previous_epoch = -1
        self.is_open = False
        self.last_end: bool | None = None
        self.partitions: set[Place] = set()
        self.groups: set[str] = set()
        self.values: list[bytes | None] = []
        self.offsets: dict[tuple[str, str, int], int] = {}


class FakeTransactions:
    """Serves transactions on ``broker``.

    committed, aborted: the values of ended transactions, in the order of their ends.
    answers: what spoils the next answers, by API: each takes the honest answer and returns another,
    or raises.
    """

    def __init__(self, broker: FakeBroker, version: int = 2) -> None:
        self.broker = broker
        self.version = version
        self.entries: dict[str, Entry] = {}
        self.committed: list[list[bytes | None]] = []
        self.aborted: list[list[bytes | None]] = []
        self.spoilers: dict[ApiKey, list[Callable[[Any], Any]]] = {}
        broker.features["transaction.version"] = version
        for api, handler in (
            (ApiKey.INIT_PRODUCER_ID, self.init_producer_id),
            (ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions),
            (ApiKey.ADD_OFFSETS_TO_TXN, self.add_offsets),
            (ApiKey.TXN_OFFSET_COMMIT, self.txn_offset_commit),
            (ApiKey.END_TXN, self.end_txn),
            (ApiKey.PRODUCE, self.produce),
        ):
            broker.handlers[api] = self._spoiled(api, handler)

    def spoil(self, api: ApiKey, *spoilers: Callable[[Any], Any]) -> None:
        """Spoil the next answers to ``api``, one after another."""
        self.spoilers[api] = list(spoilers)

    def _spoiled(self, api: ApiKey, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            spoilers = self.spoilers.get(api)
            if not spoilers:
                return handler(request)
            return spoilers.pop(0)(lambda: handler(request))

        return answer

    def entry(self, transactional_id: str) -> Entry:
        return self.entries[transactional_id]

    def time_out(self, transactional_id: str) -> None:
        """Abort the open transaction, as a coordinator does when it has taken too long."""
        entry = self.entries[transactional_id]
        entry.previous_epoch, entry.epoch = entry.epoch, entry.epoch + 1
        self._end(entry, committed=False)

    # What an honest coordinator answers.

    def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.transactional_id is None:
            return self.broker.init_producer_id(request)
        entry = self.entries.get(request.transactional_id)
        if entry is None:
            number = 1000 + len(self.entries)
            entry = self.entries[request.transactional_id] = Entry(number)
            return InitProducerIdResponse(producer_id=number, producer_epoch=0)
        if entry.is_open:
            self._end(entry, committed=False)
        known = request.producer_epoch
        if known == entry.previous_epoch >= 0:
            pass  # raised already
        elif known in {-1, entry.epoch}:
            entry.previous_epoch = known
            entry.epoch += 1
        else:
            return InitProducerIdResponse(
                error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1
            )
        return InitProducerIdResponse(producer_id=entry.producer_id, producer_epoch=entry.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert self.version < 2, "clients of version 2 leave that to the leaders"
        entry = self.entries[request.v3_and_below_transactional_id]
        code = self._refusal(entry, request.v3_and_below_producer_epoch)
        if not code:
            entry.is_open = True
            entry.partitions |= {
                (topic.name, index)
                for topic in request.v3_and_below_topics
                for index in topic.partitions
            }
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        assert self.version < 2, "clients of version 2 leave that to the group's coordinator"
        entry = self.entries[request.transactional_id]
        code = self._refusal(entry, request.producer_epoch)
        if not code:
            entry.is_open = True
            entry.groups.add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=code)

    def _is_other(self, topic: TxnOffsetCommitRequestTopic) -> bool:
        """Whether a request means another topic of the same name."""
        known = self.broker.ids.get(topic.name, ZERO_UUID)
        return topic.topic_id not in {ZERO_UUID, known}

    def txn_offset_commit(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        entry = self.entries[request.transactional_id]
        code = self._refusal(entry, request.producer_epoch)
        if self.version < 2 and request.group_id not in entry.groups:
            code = code or ErrorCode.INVALID_TXN_STATE
        if not code:
            entry.is_open = True
            for topic in request.topics:
                for part in topic.partitions if not self._is_other(topic) else ():
                    place = (request.group_id, topic.name, part.partition_index)
                    entry.offsets[place] = part.committed_offset
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=unknown if self._is_other(topic) else code,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def end_txn(self, request: EndTxnRequest) -> EndTxnResponse:
        entry = self.entries[request.transactional_id]
        is_v2 = self.version >= 2
        is_repeated = not entry.is_open and entry.last_end == request.committed
        if is_v2 and is_repeated and request.producer_epoch == entry.epoch - 1:
            return EndTxnResponse(producer_id=entry.producer_id, producer_epoch=entry.epoch)
        code = self._refusal(entry, request.producer_epoch)
        if code:
            return EndTxnResponse(error_code=code)
        if entry.is_open:
            self._end(entry, committed=request.committed)
        elif request.committed if is_v2 else not is_repeated:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if not is_v2:
            return EndTxnResponse()
        entry.previous_epoch, entry.epoch = entry.epoch, entry.epoch + 1
        return EndTxnResponse(producer_id=entry.producer_id, producer_epoch=entry.epoch)

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        entry = self.entries.get(request.transactional_id or "")
        if entry is None:
            return self.broker.produce(request)
        codes = {
            (topic.name, data.index): self._produced(entry, (topic.name, data.index), data.records)
            for topic in request.topic_data
            for data in topic.partition_data
        }
        if not any(codes.values()):
            before = {place: self.broker.logs[place].end for place in codes}
            response = self.broker.produce(request)
            for topic in request.topic_data:
                for data in topic.partition_data:
                    place = (topic.name, data.index)
                    if self.broker.logs[place].end > before[place]:
                        entry.values += [
                            one.value for one in iter_records(bytes(data.records or b""))
                        ]
            return response
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=data.index, error_code=codes[topic.name, data.index]
                        )
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _produced(self, entry: Entry, place: Place, records: Any) -> ErrorCode:
        header = read_header(bytes(records))
        assert header.is_transactional
        assert header.producer_id == entry.producer_id
        if header.producer_epoch != entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version >= 2:
            entry.is_open = True
            entry.partitions.add(place)
        return ErrorCode.NONE if place in entry.partitions else ErrorCode.INVALID_TXN_STATE

    @staticmethod
    def _refusal(entry: Entry, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if epoch == entry.epoch else ErrorCode.PRODUCER_FENCED

    def _end(self, entry: Entry, *, committed: bool) -> None:
        (self.committed if committed else self.aborted).append(entry.values)
        if committed:
            self.broker.committed.update(entry.offsets)
        entry.is_open, entry.last_end = False, committed
        entry.values, entry.offsets = [], {}
        entry.partitions, entry.groups = set(), set()
