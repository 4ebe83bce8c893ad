"""Fetch (key 1): records of some partitions, from given offsets on.

Version 5 adds the log's start, 7 sessions, 9 leader epochs (KIP-320), 12 says who leads instead, 13
names topics by id, 15 moves the replica id, 16 adds the leaders' addresses (KIP-951).

Sessions (KIP-227) are for followers. Of consumers they are declined, as
the protocol allows: every answer has session id 0 and every partition that was asked for. A request
that goes on in a session is told that there is none, and its client starts over.

A request waits up to ``max_wait_ms`` for ``min_bytes``; an error is answered at once. ``max_bytes``
bounds the whole response, but the first batch is sent whole however large it is. Answers hold whole
batches, beginning with the one that contains the offset asked for.

A consumer that says in which rack it is (version 11 on) may read from a follower, up to the high
watermark that is known there, and where that is configured it is sent to the nearest (KIP-392).

Hidden batches are not sent to consumers, see :mod:`qbus.broker.log.visible`: what they are told of
the high watermark is where the last visible record ends.

A consumer of committed records (isolation level 1) is sent what lies below the last stable offset,
and told which transactions in it were aborted (KIP-98): it passes over their records, which it is
sent as all others. It waits for the last stable offset to move. Every answer tells that offset.
"""

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

from ...authorization import CLUSTER, Operation
from ...authorization import topic as topic_resource
from ...partition.partition import Partition
from ...partition.purgatory import Delayed
from ...turns import PIECE, Pace, next_turn
from ..context import RequestContext
from ..fetch_reader import (
    NO_OFFSET,
    NO_RECORDS,
    CommittedFetchTarget,
    DelayedFetch,
    FetchAnswer,
    FetchReader,
    FetchTarget,
    HiddenFetchTarget,
)
from ..replica_sessions import NEW_EPOCH, NO_SESSION, ReplicaFetch
from .leaders import name_leaders, nearest_replica

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_TOPIC_IDS: Final = 13

_READ_COMMITTED: Final = 1
_SESSIONLESS_EPOCHS: Final = (-1, 0)
_LONG_WAIT_MS: Final = 10_000
"""For how long a long request waits for records at most.

Its connection handles nothing else meanwhile, and does not notice that the client is gone.
"""


def handle(
    broker: "Broker", context: RequestContext, request: FetchRequest
) -> FetchResponse | FetchAnswer | Coroutine[Any, Any, FetchResponse]:
    """Read what is there, or wait for it."""
    if request.replica_state.replica_id >= 0:
        return _handle_replica(broker, context, request)
    if request.session_epoch not in _SESSIONLESS_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if len(request.topics) > PIECE or _is_long(request):
        return _handle_long(broker, context, request)
    fetch = _Fetch(broker, context, request)
    response = FetchResponse(responses=[fetch.topic(topic) for topic in request.topics])
    return _finish(fetch, response, request.max_wait_ms)


def _is_long(request: FetchRequest) -> bool:
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    return count > PIECE


async def _handle_long(
    broker: "Broker", context: RequestContext, request: FetchRequest
) -> FetchResponse:
    """Read many partitions with turns of the event loop between them, each partition once."""
    fetch, pace = _Fetch(broker, context, request), Pace()
    response = FetchResponse()
    wanted: dict[tuple[str, bytes], dict[int, FetchPartition]] = {}
    limits: list[int] = []  # of the targets when they were read
    try:
        for topic in request.topics:
            if pace.is_over():
                await next_turn()
            known = wanted.setdefault((topic.topic, topic.topic_id), {})
            for one in topic.partitions:
                known.setdefault(one.partition, one)
        for (name, topic_id), some in wanted.items():
            partitions = list(some.values())
            answer = FetchableTopicResponse(topic=name, topic_id=topic_id)
            response.responses.append(answer)
            for start in range(0, len(partitions), PIECE):
                piece = partitions[start : start + PIECE]
                if pace.is_over(len(piece)):
                    await next_turn()
                part = FetchTopic(topic=name, topic_id=topic_id, partitions=piece)
                answer.partitions += fetch.topic(part).partitions
                limits += [target.limit for target in fetch.targets[len(limits) :]]
        has_moved = limits != [target.limit for target in fetch.targets]
        wait_ms = min(request.max_wait_ms, _LONG_WAIT_MS)
        finished = _finish(fetch, response, wait_ms, has_moved=has_moved)
    except BaseException:
        for target in fetch.targets:
            target.drop_records()
        raise
    return await finished if isinstance(finished, Delayed) else finished


def _finish(
    fetch: "_Fetch", response: FetchResponse, max_wait_ms: int, *, has_moved: bool = False
) -> FetchResponse | FetchAnswer:
    """Answer with what was read, or wait for more.

    ``has_moved``: there are more records by now in a partition that was read.
    """
    reader = fetch.reader
    if reader.failed:
        fetch.name_leaders(response)
    if reader.cold:
        delayed = fetch.delayed(response)
        delayed.respond(response, reader)
        return delayed
    if (
        reader.failed
        or fetch.redirected
        or reader.size >= fetch.min_bytes
        or max_wait_ms <= 0
        or not fetch.targets
    ):
        reader.count()
        return response
    delayed = fetch.delayed(response)
    delayed.wait(reader.size, fetch.min_bytes, max_wait_ms / 1000)
    if has_moved:
        delayed.readable(0)
    return delayed


class _Fetch:
    """The first reading of one request's partitions."""

    __slots__ = (
        "_broker",
        "_committed",
        "_context",
        "_from_replica",
        "_make",
        "_max_bytes",
        "_of_leader",
        "_rack",
        "_version",
        "min_bytes",
        "reader",
        "redirected",
        "targets",
    )

    def __init__(self, broker: "Broker", context: RequestContext, request: FetchRequest) -> None:
        self._broker = broker
        self._context = context
        self._version = context.api_version
        self._committed = request.isolation_level == _READ_COMMITTED
        self._from_replica = request.replica_id >= 0
        self._make: type[FetchTarget] = FetchTarget
        if request.hidden:
            self._make = HiddenFetchTarget
        elif self._committed:
            self._make = CommittedFetchTarget
        self._of_leader = not request.rack_id
        self._rack = request.rack_id if broker.config.replica_selector_class else ""
        limit = context.fetch_limit
        self._max_bytes = min(request.max_bytes, broker.replicas.fetch_max_bytes, limit)
        self.min_bytes = min(request.min_bytes, limit)
        self.reader = FetchReader(self._max_bytes)
        self.redirected = False
        self.targets: list[FetchTarget] = []

    def topic(self, topic: FetchTopic) -> FetchableTopicResponse:
        """The answers for one topic's partitions, as far as they can be read at once."""
        replicas = self._broker.replicas
        key = topic.topic if self._version < _FIRST_WITH_TOPIC_IDS else topic.topic_id
        partitions = replicas.partitions_of(key)
        is_denied = self._context.is_restricted and not self._may_read(key)
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
            if is_denied:
                self._fail(data, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif partition is None:
                self._fail(data, replicas.why_missing(key, wanted.partition))
            elif self._from_replica:
                self._fail(data, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif not (self._rack and self._redirect(partition, wanted, data)):
                target = self._make(partition, wanted, data, of_leader=self._of_leader)
                if self._context.is_restricted:
                    resource = topic_resource(partition.topic)
                    target.may_read = partial(self._context.may, Operation.READ, resource)
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
        listener = self._context.peer.listener.name
        name_leaders(self._broker.metadata, response, self._version, listener)

    def _redirect(self, partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
        """Whether the consumer is sent to a replica that is nearer to it."""
        if partition.check(wanted.current_leader_epoch):
            return False
        nearest = nearest_replica(
            partition, self._broker.metadata.brokers, self._rack, wanted.fetch_offset
        )
        if nearest == self._broker.node_id:
            return False
        data.high_watermark = partition.visible_end
        data.last_stable_offset = partition.committed_end
        data.log_start_offset = partition.log.log_start_offset
        data.preferred_read_replica = nearest
        self.redirected = True
        return True

    def _may_read(self, key: str | bytes) -> bool:
        """Whether the client may read a topic by its name or id; an unknown id is let pass."""
        if self._from_replica:
            return self._context.allows(Operation.CLUSTER_ACTION, CLUSTER)
        if isinstance(key, str):
            return self._context.allows(Operation.READ, topic_resource(key))
        known = self._broker.metadata.topics_by_id.get(key)
        return known is None or self._context.allows(Operation.READ, topic_resource(known.name))

    def _fail(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        self.reader.failed = True


def _deny_replica(request: FetchRequest) -> FetchResponse:
    """Refuse every partition, as Kafka does; a request that goes on in a session may name none."""
    if not request.topics:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=wanted.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=NO_OFFSET,
                        records=NO_RECORDS,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _handle_replica(
    broker: "Broker", context: RequestContext, request: FetchRequest
) -> FetchResponse | FetchAnswer:
    """Note what a follower has; answer what is new, or wait for it.

    From version 15 on a follower says under which registration it asks (KIP-903); one that says
    less is not answered as a follower. What it asks for next, it has: on stable storage, where the
    topic wants that. So the high watermark advances, and the follower may come in sync.
    """
    if not context.allows(Operation.CLUSTER_ACTION, CLUSTER):
        return _deny_replica(request)
    context.exempt_from_quotas()
    replicas = broker.replicas
    now = broker.clock.monotonic()
    try:
        session = replicas.sessions.session_for(request, now)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    for partition in session.take(request, now):
        replicas.isr_changes.consider(partition, session.replica_id)
    delayed = ReplicaFetch(
        replicas.purgatory,
        replicas.readers,
        session,
        min(request.max_bytes, replicas.fetch_max_bytes),
        lambda response: name_leaders(
            broker.metadata, response, context.api_version, context.peer.listener.name
        ),
    )
    is_new = request.session_epoch == NEW_EPOCH  # the follower wants to know its session's id
    delayed.begin(request.min_bytes, 0.0 if is_new else request.max_wait_ms / 1000)
    if session.session_id == NO_SESSION:
        delayed.add_done_callback(lambda _: session.close())
    return delayed
