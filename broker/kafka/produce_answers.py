"""The answers to Produce: refusals, the names of leaders, and what waits for acknowledgements."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, CorruptBatch, Record, iter_records, read_header
from qbus.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from ..log import LogConfig
from ..partition.partition import Partition
from ..partition.purgatory import Delayed
from .handlers.leaders import leader_of, reachable

if TYPE_CHECKING:
    from ..broker import Broker


def refused(index: int, error: ApiError) -> PartitionProduceResponse:
    """The answer for a partition whose batch is refused."""
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message
    )


def refuse_all(request: ProduceRequest, refusal: ApiError) -> ProduceResponse:
    """The response that refuses every batch of a request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refused(data.index, refusal) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def name_leaders(broker: "Broker", response: ProduceResponse, listener: str) -> None:
    """Say who leads the partitions that are refused for being led elsewhere."""
    ids = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = leader_of(broker.metadata, topic.name or topic.topic_id, answer.index)
                ids.add(leader.id)
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
    response.node_endpoints = [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in reachable(broker.metadata, ids, listener)
    ]


class DelayedProduce(Delayed[ProduceResponse]):
    """The response to a produce request whose appends are not all acknowledged yet.

    Their answers say REQUEST_TIMED_OUT until they are: so when the time is up, the response is
    right as it stands. A client takes that code as "unknown": the records are written, and may
    still be acknowledged.
    """

    __slots__ = ("_response", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._response: ProduceResponse | None = None
        self._waiting = 0

    def expect(
        self, partition: Partition, end_offset: int, answer: PartitionProduceResponse
    ) -> None:
        """Wait until everything below ``end_offset`` is acknowledged, which ``answer`` tells then.

        To be called right after the append: acknowledgements are owed in the order of the appends,
        and one that was given already is not given again.
        """
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting += 1
        partition.when_acknowledged(end_offset, self, answer)

    def complete_with(self, response: ProduceResponse) -> None:
        """There are no more appends: answer ``response`` once all are acknowledged."""
        self._response = response
        self._answer_if_acknowledged()

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """The partition whose answer is ``token`` is acknowledged (NONE), or never will be."""
        assert isinstance(token, PartitionProduceResponse)
        token.error_code = code
        self._waiting -= 1
        self._answer_if_acknowledged()

    def _answer_if_acknowledged(self) -> None:
        if not self._waiting and self._response is not None:
            self.answer(self._response)

    def expire(self) -> None:
        """Answer with what is acknowledged by now."""
        assert self._response is not None, "it has no time-out before it is whole"
        self.answer(self._response)


# Which records are to blame (KIP-467). Only timestamps, and what delays ask for, are to blame for
# single records: all else is wrong with a batch as a whole. A batch that is refused must not cost
# more than one that is stored, so the answer is bounded, and a compressed batch is not looked into.


def record_errors(notes: Sequence[tuple[int, str]]) -> list[BatchIndexAndErrorMessage]:
    """Numbers of records and the reasons, as the response has them."""
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
        for number, why in notes
    ]


MAX_ERRORS: Final = 10
MAX_RECORDS: Final = 1000
_NO_TIMESTAMP: Final = -1


def bad_timestamps(
    batch: memoryview, config: LogConfig, now_ms: int
) -> list[BatchIndexAndErrorMessage]:
    """The first records whose timestamps are too far from ``now_ms``."""
    if read_header(batch).compression is not Compression.NONE:
        return []
    try:
        return list(islice(_errors(iter_records(batch), config, now_ms), MAX_ERRORS))
    except CorruptBatch:  # its sum was right, so its producer wrote nonsense
        return []


def _errors(
    records: Iterator[Record], config: LogConfig, now_ms: int
) -> Iterator[BatchIndexAndErrorMessage]:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(islice(records, MAX_RECORDS)):
        timestamp = record.timestamp
        if timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
            yield BatchIndexAndErrorMessage(
                batch_index=index,
                batch_index_error_message=f"timestamp {timestamp} is not within {earliest} and"
                f" {latest}",
            )
