"""Fetch (key 1): records of some partitions, from given offsets on.

Version 5 adds the log's start, 7 sessions, 9 leader epochs (KIP-320), 12 says who leads instead, 13
names topics by id, 15 moves the replica id, 16 adds the leaders' addresses (KIP-951).

Sessions (KIP-227) are declined, as the protocol allows: every answer has session id 0 and every
partition that was asked for. A request that goes on in a session is told that there is none, and
its client starts over.

A request waits up to ``max_wait_ms`` for ``min_bytes``; an error is answered at once. ``max_bytes``
bounds the whole response, but the first batch is sent whole however large it is. Answers hold whole
batches, beginning with the one that contains the offset asked for.

Nothing is transactional yet: the last stable offset is the high watermark, no transaction aborted.
Nor is there a replica that follows: whoever asks as one is told to look for the leader elsewhere.
"""

from asyncio import Future
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

from ..context import RequestContext
from ..replication import NO_OFFSET, NO_RECORDS, DelayedFetch, FetchReader, FetchTarget
from .leaders import leader_of, reachable

if TYPE_CHECKING:
    from ..broker import Broker

_FIRST_WITH_LEADERS = 12
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_ADDRESSES = 16

_READ_COMMITTED = 1
_SESSIONLESS_EPOCHS = (-1, 0)
_LED_OTHERWISE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    broker: "Broker", context: RequestContext, request: FetchRequest
) -> FetchResponse | Future[FetchResponse]:
    """Read what is there, or wait for it."""
    if request.session_epoch not in _SESSIONLESS_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(broker, context.api_version, request)
    response = FetchResponse(responses=[fetch.topic(topic) for topic in request.topics])
    reader = fetch.reader
    if reader.failed:
        fetch.name_leaders(response)
    if reader.cold:
        delayed = fetch.delayed(response)
        delayed.read_cold(reader)
        return delayed
    if (
        reader.failed
        or reader.size >= request.min_bytes
        or request.max_wait_ms <= 0
        or not fetch.targets
    ):
        return response
    delayed = fetch.delayed(response)
    delayed.wait(reader.size, request.min_bytes, request.max_wait_ms / 1000)
    return delayed


class _Fetch:
    """The first reading of one request's partitions."""

    __slots__ = (
        "_broker",
        "_committed",
        "_from_replica",
        "_max_bytes",
        "_version",
        "reader",
        "targets",
    )

    def __init__(self, broker: "Broker", version: int, request: FetchRequest) -> None:
        self._broker = broker
        self._version = version
        self._committed = request.isolation_level == _READ_COMMITTED
        self._from_replica = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        self._max_bytes = min(request.max_bytes, broker.replicas.fetch_max_bytes)
        self.reader = FetchReader(self._max_bytes)
        self.targets: list[FetchTarget] = []

    def topic(self, topic: FetchTopic) -> FetchableTopicResponse:
        """The answers for one topic's partitions, as far as they can be read at once."""
        replicas = self._broker.replicas
        key = topic.topic if self._version < _FIRST_WITH_TOPIC_IDS else topic.topic_id
        partitions = replicas.partitions_of(key)
        answers = []
        for wanted in topic.partitions:
            data = PartitionData(
                partition_index=wanted.partition,
                high_watermark=NO_OFFSET,
                aborted_transactions=[] if self._committed else None,
                records=NO_RECORDS,
            )
            answers.append(data)
            partition = partitions.get(wanted.partition)
            if partition is None:
                self._fail(data, replicas.why_missing(key, wanted.partition))
            elif self._from_replica:
                self._fail(data, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                target = FetchTarget(partition, wanted, data)
                self.targets.append(target)
                self.reader.read(target)
        return FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=answers
        )

    def delayed(self, response: FetchResponse) -> DelayedFetch:
        """The response for later."""
        replicas = self._broker.replicas
        return DelayedFetch(
            replicas.purgatory,
            replicas.readers,
            response,
            self.targets,
            self._max_bytes,
            self.name_leaders,
        )

    def name_leaders(self, response: FetchResponse) -> None:
        """Say who leads the partitions that are led elsewhere, or in another epoch."""
        if self._version < _FIRST_WITH_LEADERS:
            return
        metadata = self._broker.metadata
        ids = set()
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in _LED_OTHERWISE:
                    leader = leader_of(
                        metadata, topic.topic or topic.topic_id, data.partition_index
                    )
                    ids.add(leader.id)
                    data.current_leader = LeaderIdAndEpoch(
                        leader_id=leader.id, leader_epoch=leader.epoch
                    )
        if self._version >= _FIRST_WITH_ADDRESSES:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in reachable(metadata, ids)
            ]

    def _fail(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        self.reader.failed = True
