"""ShareFetch (key 78): records for a member of a share group, and what became of earlier ones.

The partitions are those of the member's session (:mod:`..share_sessions`), whose first request has
epoch 0 and whose last one has epoch -1. Acknowledgements are stored before the answer, whether or
not there are records. The answer comes when something is acquired and ``min_bytes`` are reached, or
``max_wait_ms`` are over; or at once, when the session's next request comes behind this one on its
connection, so that acknowledgements never wait for records. Requests that wait get what comes in
their order.

Batches are sent with what is acquired of them beside: whole, but of a large one of which little is
acquired that part alone. ``max_records`` is passed to come to the end of a batch, unless
``share_acquire_mode`` is 1 (version 2, KIP-1206). A request with ``is_renew_ack`` renews locks and
acquires nothing (KIP-1222), nor does one with ``max_bytes`` 0, which is answered at once.
``batch_size`` is not heeded: what is acquired of one batch is told as one.
"""

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.share_acknowledge import AcknowledgementBatch
from qbus.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...partition.purgatory import Delayed
from ...turns import PIECE, Pace, in_pieces, next_turn
from ..context import RequestContext
from ..share_requests import (
    acknowledge,
    failure,
    later,
    names,
    read_acknowledgements,
    renews,
)
from ..share_sessions import CLOSE, OPEN, ShareSession, TopicPartition
from .leaders import leader_of, reachable

if TYPE_CHECKING:
    from ...broker import Broker
    from ...queues.types import WaitedFor

_RECORD_LIMIT: Final = 1
_MOST_DELIVERIES: Final = 2**15 - 1
_ANY_NUMBER: Final = 2**31 - 1
_PAUSED: Final = ("out", "all")


def handle(
    broker: "Broker", context: RequestContext, request: ShareFetchRequest
) -> Delayed[ShareFetchResponse]:
    """Acknowledge, and take what is there or wait for it."""
    group, member = names(request.group_id, request.member_id)
    context.authorize(Operation.READ, group_resource(group))
    _check(context, request)
    sessions = broker.share_sessions
    former = None
    if request.share_session_epoch == OPEN:
        session, former = sessions.open(group, member, context.peer)
    else:
        session = sessions.go_on(group, member, request.share_session_epoch)
    fetch = _ShareFetch(broker, context, request, session)
    session.finish = fetch.hurry
    delayed = later(fetch.answer(former))
    fetch.delayed = delayed
    return delayed


def _check(context: RequestContext, request: ShareFetchRequest) -> None:
    acknowledges = any(
        partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    )
    if request.share_session_epoch == OPEN and acknowledges:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a session has nothing to acknowledge when it begins"
        )
    if context.api_version >= 2 and request.is_renew_ack:
        limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
        if any(limits):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "a request that renews locks acquires nothing, so its limits are to be 0",
            )


class _Waiter:
    """Waits for records in queues; whichever has some first wakes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None
        self._waiting: dict[WaitedFor, None] = {}
        self._called: dict[WaitedFor, None] = {}
        self._is_over = False

    def ready(self, queue: "WaitedFor") -> bool:
        """See :class:`qbus.broker.queues.Waiter`."""
        self._waiting.pop(queue, None)
        if self._is_over:
            return False
        self._called[queue] = None
        self._wake()
        return True

    def wait_for(self, queue: "WaitedFor", *, again: bool = False) -> None:
        """Be called when the queue has something."""
        self._waiting[queue] = None
        queue.wait(self, again=again)

    async def wait(self) -> "list[WaitedFor]":
        """The queues that have something; none: it is over."""
        if not self._called and not self._is_over:
            self._woken = self._loop.create_future()
            await self._woken
        called = list(self._called)
        self._called.clear()
        return called

    def finish(self) -> None:
        """Wait no longer, whatever there is."""
        self._is_over = True
        self._wake()

    def forget(self, called: Iterable["WaitedFor"] = ()) -> None:
        """Have no queue call any more, nor those that are ``called`` wait for it."""
        for queue in (*self._waiting, *self._called, *called):
            queue.forget(self)
        self._waiting.clear()
        self._called.clear()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class _ShareFetch:
    """One request on its way to its answer."""

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._settings = broker.metadata.group_config(session.group)
        self._data: dict[TopicPartition, PartitionData] = {}
        self._done: set[TopicPartition] = set()  # taken from, or failed
        self._topics: dict[WaitedFor, str] = {}  # of what is waited for
        self._size = 0
        self._records = 0
        self._has_failed = False
        self._is_hurried = False
        self._waiter: _Waiter | None = None
        self.delayed: Delayed[ShareFetchResponse] | None = None

    async def answer(self, former: ShareSession | None) -> ShareFetchResponse:
        """Do all that the request wants. ``former``: the member's session before this one."""
        request, session = self._request, self._session
        sessions = self._broker.share_sessions
        try:
            if former is not None:
                await sessions.release(former)
            session.update(
                ((t.topic_id, p.partition_index) for t in request.topics for p in t.partitions),
                (
                    (t.topic_id, index)
                    for t in request.forgotten_topics_data
                    for index in t.partitions
                ),
            )
            acknowledging = self._acknowledgements()
            if request.share_session_epoch == CLOSE:
                await asyncio.gather(*acknowledging)
                await sessions.release(session)
            elif request.is_renew_ack or not acknowledging:
                await asyncio.gather(*acknowledging, self._fetch())
            else:
                # What is there need not wait for a disk; what comes must not keep that waiting.
                await asyncio.gather(*acknowledging, self._take_all(session.in_turn()))
                await self._fetch()
        finally:
            if session.finish == self.hurry:
                session.finish = None
            if session.is_closed and session.touched:
                sessions.release_later(session)
        return self._response()

    # Acknowledging

    def _acknowledgements(self) -> list[asyncio.Task[None]]:
        wanted = [
            ((topic.topic_id, one.partition_index), one.acknowledgement_batches)
            for topic in self._request.topics
            for one in topic.partitions
            if one.acknowledgement_batches
        ]
        if len(wanted) > PIECE:
            return [asyncio.create_task(self._acknowledge_all(wanted))]
        return [asyncio.create_task(self._acknowledge(*one)) for one in wanted]

    async def _acknowledge_all(
        self, wanted: list[tuple[TopicPartition, list[AcknowledgementBatch]]]
    ) -> None:
        async for piece in in_pieces(wanted):
            await asyncio.gather(*(self._acknowledge(*one) for one in piece))

    async def _acknowledge(
        self, place: TopicPartition, batches: list[AcknowledgementBatch]
    ) -> None:
        data = self._data_of(place)
        session = self._session
        may_renew = renews(
            self._context,
            is_renew_ack=self._request.is_renew_ack,
            allowed=self._settings.share_renew_acknowledge_enable,
        )
        try:
            read = read_acknowledgements(batches, renews=may_renew)
            await acknowledge(
                self._broker.group_queues, self._context, session.group, session.owner, place, read
            )
        except Exception as error:  # noqa: BLE001 - of this partition alone
            known = failure(error)
            data.acknowledge_error_code = known.code
            data.acknowledge_error_message = known.message
            self._name_leader(data, place, known.code)

    # Taking

    async def _fetch(self) -> None:
        """Take records until there are enough, or the time is up."""
        request, session = self._request, self._session
        if request.is_renew_ack:
            return
        await self._take_all(session.in_turn())
        if request.max_wait_ms <= 0 or self._is_enough():
            return
        waiter = self._waiter = _Waiter()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(request.max_wait_ms / 1000, waiter.finish)
        since = perf_counter()
        called: list[WaitedFor] = []
        try:
            # What came since the look above makes the queues call at once.
            self._wait_for_all(waiter)
            while not self._is_enough():
                called = await waiter.wait()
                if not called:
                    break
                await self._take_called(waiter, called)
                called = []
        finally:
            timer.cancel()
            waiter.forget(called)
            self._waiter = None
            if self.delayed is not None:
                self.delayed.waited_s = perf_counter() - since

    def hurry(self) -> None:
        """Answer with what there is."""
        self._is_hurried = True
        if self._waiter is not None:
            self._waiter.finish()

    def _wait_for_all(self, waiter: _Waiter) -> None:
        for place in self._session.partitions:
            if place not in self._done:
                try:
                    partition, queue = self._broker.group_queues.of(self._session.group, *place)
                    if not self._is_paused(partition.topic):
                        self._topics[queue] = partition.topic
                        waiter.wait_for(queue)
                except ApiError as error:
                    self._fail(place, error)

    async def _take_called(self, waiter: _Waiter, called: "list[WaitedFor]") -> None:
        before = self._records
        await self._take_all(self._session.in_turn())
        was_in_vain = self._records == before and not self._has_failed
        for queue in called:
            if was_in_vain and not self._is_paused(self._topics[queue]):
                waiter.wait_for(queue, again=True)
            else:
                queue.forget(waiter)

    async def _take_all(self, places: list[TopicPartition]) -> None:
        pace = Pace()
        for place in places:
            if place not in self._done and not self._is_full():
                if pace.is_over():
                    await next_turn()
                await self._take(place)

    async def _take(self, place: TopicPartition) -> None:
        request, session = self._request, self._session
        if session.is_closed:
            return
        most_bytes = min(request.max_bytes, self._broker.replicas.fetch_max_bytes)
        try:
            self._broker.group_queues.check_topic(self._context, place[0])
            partition, queue = self._broker.group_queues.of(session.group, *place)
            if self._is_paused(partition.topic):
                return
            session.touched.add(place)
            taken = await queue.take_batches(
                session.owner,
                max_records=self._most_records() - self._records,
                max_bytes=most_bytes - self._size,
                min_one=self._size == 0,
                exact=request.share_acquire_mode == _RECORD_LIMIT,
            )
        except Exception as error:  # noqa: BLE001 - of this partition alone
            self._fail(place, failure(error))
            return
        if not taken.acquired:
            return
        self._done.add(place)
        data = self._data_of(place)
        data.records = taken.records
        data.acquired_records = [
            AcquiredRecords(
                first_offset=first,
                last_offset=last,
                delivery_count=min(deliveries, _MOST_DELIVERIES),
            )
            for first, last, deliveries in taken.acquired
        ]
        partition.bytes_out += len(taken.records)
        self._size += len(taken.records)
        self._records += sum(last - first + 1 for first, last, _ in taken.acquired)

    def _is_paused(self, topic: str) -> bool:
        """Whether nothing is given out of a topic for now; the request waits its time then."""
        known = self._broker.metadata.topics.get(topic)
        if known is None:
            return False
        return self._broker.metadata.topic_config(known).qbus_queue_pause in _PAUSED

    def _fail(self, place: TopicPartition, error: ApiError) -> None:
        self._done.add(place)
        self._has_failed = True
        data = self._data_of(place)
        data.error_code, data.error_message = error.code, error.message
        self._name_leader(data, place, error.code)

    def _most_records(self) -> int:
        return self._request.max_records if self._request.max_records > 0 else _ANY_NUMBER

    def _is_full(self) -> bool:
        limit = min(self._request.max_bytes, self._broker.replicas.fetch_max_bytes)
        has_bytes = self._size >= limit and (self._size > 0 or limit <= 0)
        return has_bytes or self._records >= self._most_records()

    def _is_enough(self) -> bool:
        return (
            self._has_failed
            or self._is_hurried
            or self._session.is_closed
            or self._broker.share_sessions.is_draining
            or (self._records > 0 and self._size >= self._request.min_bytes)
            or self._is_full()
            or self._done.issuperset(self._session.partitions)
        )

    # Answering

    def _data_of(self, place: TopicPartition) -> PartitionData:
        data = self._data.get(place)
        if data is None:
            data = self._data[place] = PartitionData(partition_index=place[1])
        return data

    def _name_leader(self, data: PartitionData, place: TopicPartition, code: int) -> None:
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = leader_of(self._broker.metadata, *place)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)

    def _response(self) -> ShareFetchResponse:
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in self._data.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(data)
        leaders = {data.current_leader.leader_id for data in self._data.values()}
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._settings.share_record_lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in reachable(
                    self._broker.metadata, leaders, self._context.peer.listener.name
                )
            ],
        )
