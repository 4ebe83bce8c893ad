"""The share sessions with all brokers: they fetch when the reader waits, and acknowledge soon."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from qbus.errors import ApiError, ErrorCode, QbusError, WireError
from qbus.records import Buffer
from qbus.wire import ApiKey
from qbus.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from qbus.wire.messages.share_fetch import PartitionData, ShareFetchResponse

from ..errors import TopicDeleted, api_error, check
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .acknowledgements import Ack, AckType
from .acquired import AcquiredRange, AcquiredRecords
from .options import ShareOptions
from .session import Lease, Loss, Sent, ShareSession
from .taken import Span
from .types import RecordPlace

_log = logging.getLogger(__name__)

_RETRY_DELAY = 0.1
_SOON = 0.02
"""Seconds that an acknowledgement waits for others to go with, and for a fetch."""
_SESSION_LOST = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
_RENEWING_VERSION = 2
_CANNOT_RENEW = ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker cannot renew locks")


class ShareSessions:
    """Takes records of the ``assigned`` partitions from their leaders.

    Of each broker one fetch is in flight while the reader waits, and nothing is fetched ahead:
    locks run. An acknowledgement goes with the next fetch, or by itself if there is none soon; both
    on one connection, so that the broker sees the session's requests in their order.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ShareOptions,
        member_id: str,
        changed: asyncio.Event,
        rejoin: Callable[[], None],
        begun_anew: Callable[[], None],
    ) -> None:
        """``changed`` is set when the reader has something to do, and ``rejoin`` called when a
        broker does not know the member, ``begun_anew`` when a session is lost.
        """
        self.assigned: Collection[TopicPartition] = frozenset()
        self.failure: QbusError | None = None
        self.losses: list[Loss] = []
        self.lock_timeout: float | None = None
        """Seconds that a lock lasts, as the brokers say; None: not yet known."""
        self._cluster = cluster
        self._options = options
        self._member_id = member_id
        self._changed = changed
        self._rejoin = rejoin
        self._begun_anew = begun_anew
        self._sessions: dict[int, ShareSession] = {}
        self._fetched: deque[tuple[AcquiredRecords, Lease]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._finding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_resting = False
        self._empty: set[int] = set()  # brokers that had no records when they were asked last
        self._turn = -1

    # What was fetched.

    def next_fetched(self) -> tuple[AcquiredRecords, Lease] | None:
        """Return the records to read next, of the partition that was read least lately."""
        while self._fetched:
            acquired, lease = self._fetched[0]
            if lease.is_fresh and acquired.look_ahead():
                self._fetched.rotate(-1)
                return acquired, lease
            self._fetched.popleft()
            if lease.is_valid and not lease.is_fresh and (late := acquired.drop()):
                _log.warning(
                    "%d records of %s-%d waited longer to be read than their locks last (%s s)",
                    *(len(late), *acquired.partition, self.lock_timeout),
                )
            self.account(acquired, lease)
        return None

    def account(self, acquired: AcquiredRecords, lease: Lease) -> None:
        """Say what is to be said of what the reader does not see."""
        for ack in acquired.leftovers:
            self.say(acquired.partition, ack, lease)
        acquired.leftovers.clear()

    def assign(self, assigned: Collection[TopicPartition]) -> None:
        """Take records of these partitions, and give back what waits of others."""
        self.assigned = frozenset(assigned)
        kept: deque[tuple[AcquiredRecords, Lease]] = deque()
        for acquired, lease in self._fetched:
            if acquired.partition in self.assigned:
                kept.append((acquired, lease))
                continue
            for offset in acquired.drop():
                self.say(acquired.partition, Ack(offset, AckType.RELEASE, 0), lease)
            self.account(acquired, lease)
        self._fetched = kept

    def rest(self, *, keep: bool) -> None:
        """Give back what still comes: the reader does not wait for records any more.

        A Qbus broker is asked to answer its fetch at once. ``keep``: but not what is there already.
        """
        self._is_resting = True
        if not keep:
            self._give_back()
        self._hurry(session for session in self._sessions.values() if session.is_open)

    def _give_back(self) -> None:
        kept, self.assigned = self.assigned, frozenset()
        self.assign(())
        self.assigned = kept

    # Fetching.

    def start(self, limit: int | None = None) -> None:
        """Ask each broker that is not asked yet for records; ``limit``: how many the reader wants.

        Who takes records and not batches takes no more than that: the brokers are asked one after
        the other, and wait for records only when none of them has any.
        """
        if self._is_closed:
            return
        self._is_resting = False
        led = self._led()
        max_wait = self._options.fetch_max_wait
        if limit is not None and self._options.by_records and not led.keys() <= self._empty:
            if any(session.is_fetching for session in self._sessions.values()):
                return
            self._turn = next((node for node in sorted(led) if node > self._turn), min(led))
            led, max_wait = {self._turn: led[self._turn]}, 0.0
        for node, wanted in led.items():
            session = self._sessions.get(node)
            if session is None:
                session = ShareSession(self._options, self._member_id, node, self._begun_anew)
                self._sessions[node] = session
            if not session.is_fetching:
                session.is_fetching = True
                self._spawn(self._fetch(session, wanted, max_wait, limit))

    def _led(self) -> dict[int, dict[TopicPartition, bytes]]:
        """The assigned partitions by their leaders, each with its topic's id; looks for others."""
        led: dict[int, dict[TopicPartition, bytes]] = {}
        leaderless: set[str] = set()
        metadata = self._cluster.metadata
        for partition in self.assigned:
            try:
                leader = metadata.leader(*partition)
            except ApiError:
                leaderless.add(partition.topic)
            else:
                topic_id = metadata.topics[partition.topic].topic_id.bytes
                led.setdefault(leader, {})[partition] = topic_id
        if leaderless and self._finding is None:
            self._finding = asyncio.create_task(self._find(leaderless))
        return led

    async def _find(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except ApiError as error:
            if not error.retriable:
                self.fail(error)
        except QbusError as error:
            self.fail(error)
        self._cluster.leaderless(p for p in self.assigned if p.topic in topics)
        for topic in topics:
            refused = self._cluster.metadata.errors.get(topic)
            if refused is not None and not refused.retriable:
                self.fail(refused)
        await asyncio.sleep(_RETRY_DELAY)
        self._finding = None
        self._changed.set()

    async def _fetch(
        self,
        session: ShareSession,
        wanted: dict[TopicPartition, bytes],
        max_wait: float,
        limit: int | None,
    ) -> None:
        has_failed = True
        sent: Sent | None = None
        try:
            connection = await self._cluster.connection(session.node, ConnectionGroup.FETCH)
            self._leave_deleted(session, wanted)
            request, sent = session.fetch(wanted, max_wait, limit)
            response: ShareFetchResponse = await connection.request(
                ApiKey.SHARE_FETCH,
                request,
                self._cluster.request_timeout + max_wait,
            )
            check(response.error_code, response.error_message, of="share fetch")
            has_failed = self._arrived(session, sent, response)
        except ApiError as error:
            self._failed(session, sent, error)
        except WireError as error:
            self._failed(session, sent, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        except QbusError as error:
            self.fail(error)
        if not self._fetched:
            self._empty.add(session.node)
        if has_failed:
            self._changed.set()
            await asyncio.sleep(_RETRY_DELAY)
        session.is_fetching = session.is_hurried = False
        self._changed.set()
        if session.pending:
            self._say_soon()

    def _leave_deleted(self, session: ShareSession, wanted: Mapping[TopicPartition, bytes]) -> None:
        """Begin the session anew if a topic was deleted and created again (KIP-516).

        What was acquired of the former topic must not be acknowledged in the new one.
        """
        for topic in session.recreated(wanted):
            _log.warning(
                "topic %s was deleted and created again: records of the former one are dropped,"
                " the group begins in the new one as share.auto.offset.reset says",
                topic,
            )
            reason = f"topic {topic} was deleted and created again"
            self._lost(session.lose(TopicDeleted(reason)))

    def _arrived(self, session: ShareSession, sent: Sent, response: ShareFetchResponse) -> bool:
        """Keep what was acquired; return whether some partition was refused."""
        self._note_lock(response.acquisition_lock_timeout_ms)
        self._lost(session.fetched(sent, response))
        has_failed = False
        for topic in response.responses:
            name = session.name_of(topic.topic_id)
            if name is None:
                continue  # nothing was asked of it
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if data.error_code != ErrorCode.NONE:
                    has_failed = True
                    self._refused(partition, data)
                elif self._cluster.troubles:
                    self._cluster.troubles.solved(f"{name}-{data.partition_index}")
                if data.acquired_records:
                    self._empty.clear()
                    self._keep(partition, data, sent.lease)
        if self._cluster.troubles:
            self._cluster.troubles.solved(f"a session with broker {session.node}")
        return has_failed

    def _keep(self, partition: TopicPartition, data: PartitionData, lease: Lease) -> None:
        records: Buffer = data.records if data.records is not None else b""
        acquired = AcquiredRecords(
            partition,
            memoryview(records),
            [
                AcquiredRange(span.first_offset, span.last_offset, span.delivery_count)
                for span in data.acquired_records
            ],
            check_crcs=self._options.check_crcs,
            max_size=self._options.batch_max_bytes,
        )
        if self.lock_timeout is not None:
            lease = lease._replace(until=time.monotonic() + self.lock_timeout)
        self._fetched.append((acquired, lease))
        if self._is_resting:
            acquired = self._fetched.pop()[0]
            for offset in acquired.drop():
                self.say(partition, Ack(offset, AckType.RELEASE, 0), lease)
            self.account(acquired, lease)
        elif partition not in self.assigned:  # it went to another member meanwhile
            self.assign(self.assigned)

    def _refused(self, partition: TopicPartition, data: PartitionData) -> None:
        topic, index = partition
        error = api_error(data.error_code, data.error_message, of=f"{topic}-{index}")
        if not error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            self.fail(error)
            return
        hint = data.current_leader
        if not self._cluster.apply_leader_hint(topic, index, hint.leader_id, hint.leader_epoch):
            self._cluster.metadata.forget([topic])
            self._cluster.troubles.met(f"{topic}-{index}", error, grace=USUAL_S)

    def _failed(self, session: ShareSession, sent: Sent | None, error: ApiError) -> None:
        """Handle a request without an answer, or one that was refused as a whole."""
        if sent is None:  # no connection: what was acquired over the last one is lost with it
            if session.is_open:
                self._lost(session.lose(error))
        else:
            self._lost(session.failed(sent, error))
        self._changed.set()
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._rejoin()
        elif error.code not in _SESSION_LOST:
            self._cluster.metadata.forget({partition.topic for partition in self.assigned})
            if not error.retriable:
                self.fail(error)
        elif error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            self._cluster.troubles.met(f"a session with broker {session.node}", error)

    def _note_lock(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.lock_timeout = timeout_ms / 1000

    # Acknowledging.

    def say(self, partition: TopicPartition, ack: Ack, lease: Lease) -> None:
        """Acknowledge a record that was acquired under ``lease``, soon."""
        if not lease.is_valid:
            if ack.told is not None:
                ack.told.set_exception(_gone(lease))
            elif ack.type is not AckType.GAP:
                gone, offsets = _gone(lease), range(ack.offset, ack.last + 1)
                self._lost([Loss(RecordPlace(*partition, offset), gone) for offset in offsets])
            return
        lease.session.pending.add(partition, ack)
        if ack.told is not None:
            self.say_now()
        else:
            self._say_soon()

    def accept(self, spans: Iterable[Span]) -> None:
        """Accept records, soon."""
        for partition, first, size, lease in spans:
            self.say(partition, Ack(first, AckType.ACCEPT, size=size), lease)

    def say_now(self) -> None:
        """Send what there is to be said, without waiting for more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session in self._sessions.values():
            if session.pending and not session.is_acknowledging and session.is_open:
                session.is_acknowledging = True
                self._spawn(self._acknowledge(session))

    def _say_soon(self) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self.say_now)

    async def said(self) -> None:
        """Return when everything that was said has an outcome."""
        while busy := [s for s in self._sessions.values() if not s.is_idle]:
            self.say_now()
            self._hurry(busy)
            running = [task for task in self._tasks if not task.done()]
            if not running:
                for session in busy:  # nobody will say it
                    self._lost(session.lose(_gone(Lease(session, session.life))))
                return
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    def _hurry(self, sessions: Iterable[ShareSession]) -> None:
        """Have fetches answered that took acknowledgements along and wait for records.

        A Qbus broker answers them at once when the session's next request comes; others as ever.
        """
        for session in sessions:
            if session.is_fetching and not session.is_acknowledging and not session.is_hurried:
                session.is_hurried = session.is_acknowledging = True
                self._spawn(self._acknowledge(session))

    async def _acknowledge(self, session: ShareSession, *, is_last: bool = False) -> None:
        sent: Sent | None = None
        try:
            connection = await self._cluster.connection(session.node, ConnectionGroup.FETCH)
            if not session.is_open:
                return  # it was lost meanwhile
            if connection.version(ApiKey.SHARE_ACKNOWLEDGE) < _RENEWING_VERSION:
                session.renews_nothing(_CANNOT_RENEW)
            request, sent = session.acknowledge(is_last=is_last)
            response: ShareAcknowledgeResponse = await connection.request(
                ApiKey.SHARE_ACKNOWLEDGE,
                request,
                # Behind a fetch that waits, which other brokers than Qbus's let wait on.
                self._cluster.request_timeout + self._options.fetch_max_wait,
            )
            check(response.error_code, response.error_message, of="share acknowledge")
            self._note_lock(response.acquisition_lock_timeout_ms)
            self._lost(session.acknowledged(sent, response))
        except ApiError as error:
            self._failed(session, sent, error)
        except WireError as error:
            self._failed(session, sent, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        finally:
            session.is_acknowledging = False
        if session.pending:
            self._say_soon()

    def _lost(self, losses: list[Loss]) -> None:
        if losses:
            self.losses += losses
            self._changed.set()

    # The end.

    def fail(self, error: QbusError) -> None:
        """Keep an error for the next poll."""
        self.failure = error
        self._changed.set()

    async def close(self) -> None:
        """End the sessions: what was acquired, and nothing was said of, goes back to the group."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._fetched.clear()
        ends = [
            self._acknowledge(session, is_last=True)
            for session in self._sessions.values()
            if session.is_open
        ]
        try:
            await asyncio.gather(*ends, return_exceptions=True)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = [*self._tasks, *([] if self._finding is None else [self._finding])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _gone(lease: Lease) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"the session with broker {lease.session.node}, in which it was acquired, is over",
    )
