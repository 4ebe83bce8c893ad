"""Fetch sessions of followers (KIP-227): what each follower has, and what is new for it.

A request names only the partitions that changed for the follower since its last request, a response
only those that changed here. A session watches its partitions all the time and keeps those that
changed. So a response costs what is new, however many partitions there are. The offset that a
follower asks for says what it has; of a partition that it does not name it has what it had.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from random import Random
from typing import Final, Protocol

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

from ..log import LogSlice, VisibleRecords
from ..partition.leader_throttle import LeaderThrottle
from ..partition.partition import NO_EPOCH, Partition
from ..partition.purgatory import Purgatory
from .fetch_reader import NO_OFFSET, NO_RECORDS, FetchAnswer, FetchReader, FetchTarget


class ReplicaTarget(FetchTarget):
    """One partition of a follower's request, and its answer."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """The end of the log: followers read records that are not acknowledged yet."""
        return self.partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Followers take it over as it is."""
        return self.partition.high_watermark

    def read(
        self, max_bytes: int, min_one_batch: bool, *, wait: bool = False
    ) -> LogSlice | VisibleRecords | None:
        """The records as they are, hidden batches included. Raises as :meth:`Log.read` does."""
        return self.partition.log.read(
            self.wanted.fetch_offset, max_bytes, self.limit, min_one_batch, wait=wait
        )

    def check(self) -> ErrorCode:
        """As for a consumer; but a follower must name the epoch that it truncated its log for."""
        epoch = self.wanted.current_leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if epoch == NO_EPOCH else self.partition.check(epoch)

    def count(self) -> None:
        """Count the records of the answer as replicated."""
        records = self.data.records
        if records:
            self.partition.replicated_bytes += len(records)


class FollowedPartition:
    """A partition of a session: what the follower asks for, and what it was sent last."""

    __slots__ = ("_high_watermark", "_log_start", "_session", "key", "partition", "wanted")

    def __init__(
        self, session: "ReplicaSession", key: tuple[bytes, int], wanted: FetchPartition
    ) -> None:
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        self._session = session
        self._high_watermark = -1
        self._log_start = -1

    @property
    def topic_id(self) -> bytes:
        """The topic that it belongs to."""
        return self.key[0]

    @property
    def has_all(self) -> bool:
        """Whether the follower had everything when it asked last, and has it still."""
        partition = self.partition
        return partition is None or self.wanted.fetch_offset >= partition.log.log_end_offset

    @property
    def asked_at(self) -> float:
        """When the follower sent its last request, a monotonic time in seconds."""
        return self._session.asked_at

    def watch(self, partition: Partition | None) -> None:
        """Watch ``partition``, which has this key now."""
        if partition is not self.partition:
            self.unwatch()
            self.partition = partition
            if partition is not None:
                partition.replica_watchers[self] = None

    def unwatch(self) -> None:
        """Stop watching."""
        if self.partition is not None:
            self.partition.replica_watchers.pop(self, None)
            self.partition = None

    def send_bounds(self, data: PartitionData) -> bool:
        """Note that the high watermark and the log's start are sent; whether they are new."""
        before = (self._high_watermark, self._log_start)
        self._high_watermark, self._log_start = data.high_watermark, data.log_start_offset
        return before != (data.high_watermark, data.log_start_offset)

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""
        self._session.changed(self, size, at_once=True)

    def changed(self, *, at_once: bool) -> None:
        """Something else changed."""
        self._session.changed(self, 0, at_once=at_once)


_LAST_EPOCH: Final = (1 << 31) - 1


class Partitions(Protocol):
    """Where the partitions of this broker are found."""

    def get_partition(self, topic: bytes, index: int) -> Partition | None:
        """Return a partition that this broker holds, or None."""

    def why_missing(self, topic: bytes, index: int) -> ErrorCode:
        """Return the error for a partition that this broker does not hold."""


class Waiting(Protocol):
    """A request of the session that waits for its response."""

    def on_records(self) -> None:
        """There is more to read, or an urgent change."""

    def on_bounds(self) -> None:
        """A high watermark or a log's start moved, which may wait a little for records."""

    def supersede(self) -> None:
        """Answer that nothing is new: a later request gets everything."""


class ReplicaSession:
    """One session of a follower.

    broker_epoch: the follower's registration.
    asked_at: when its last request came, a monotonic time in seconds.
    pending: bytes appended since the last response.
    """

    def __init__(
        self,
        session_id: int,
        replica_id: int,
        broker_epoch: int,
        partitions: Partitions,
        throttle: LeaderThrottle,
    ) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.asked_at = 0.0
        self.epoch = 1
        self.pending = 0
        self.waiting: Waiting | None = None
        self._partitions = partitions
        self._throttle = throttle
        self._followed: dict[tuple[bytes, int], FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}
        self._bounds: dict[FollowedPartition, PartitionData] = {}
        self._deleted: dict[FollowedPartition, None] = {}  # which followers hear of by themselves

    def __len__(self) -> int:
        return len(self._followed)

    def next_epoch(self) -> None:
        """Expect the epoch of the next request (KIP-227: it never becomes 0 again)."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def take(self, request: FetchRequest, now: float) -> list[Partition]:
        """Take in what the follower has and asks for; the partitions that it acknowledged."""
        self.asked_at = now
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._forget((topic.topic_id, index))
        acknowledged = []
        for wanted_topic in request.topics:
            for wanted in wanted_topic.partitions:
                followed = self._follow((wanted_topic.topic_id, wanted.partition), wanted)
                if followed.partition is not None and self._acknowledge(followed, now):
                    acknowledged.append(followed.partition)
        return acknowledged

    @property
    def has_bounds(self) -> bool:
        """Whether high watermarks or logs' starts wait to be sent along with records."""
        return bool(self._bounds)

    def respond(self, reader: FetchReader, *, with_bounds: bool) -> FetchResponse:
        """Return what is new, as far as ``reader`` has room; the rest stays for the next response.

        with_bounds: respond even if only high watermarks and logs' starts are new.
        """
        self.pending = 0
        changed, self._changed = self._changed, {}
        answers = [
            (followed, data)
            for followed in changed
            if (data := self._read(followed, reader)) is not None
        ]
        if answers or with_bounds:
            answers += self._bounds.items()
            self._bounds = {}
        return FetchResponse(session_id=self.session_id, responses=_by_topic(answers))

    def still_caught_up(self) -> None:
        """Acknowledge again the partitions of which the follower has everything.

        It is told what was deleted, if it has not heard of that by now.
        """
        for followed in self._followed.values():
            if followed.has_all:
                self._acknowledge(followed, self.asked_at)
        deleted, self._deleted = self._deleted, {}
        for followed in deleted:
            self.changed(followed, 0, at_once=True)

    def close(self) -> None:
        """Stop watching all partitions."""
        self.waiting = None
        for followed in self._followed.values():
            followed.unwatch()
        self._followed.clear()
        self._changed.clear()
        self._bounds.clear()
        self._deleted.clear()

    # Called by the followed partitions.

    def changed(self, followed: FollowedPartition, size: int, *, at_once: bool) -> None:
        """Take in that a partition has ``size`` more bytes, or else changed, perhaps urgently."""
        self._changed[followed] = None
        self.pending += size
        if self.waiting is None:
            return
        if size or at_once:
            self.waiting.on_records()
        else:
            self.waiting.on_bounds()

    def _follow(self, key: tuple[bytes, int], wanted: FetchPartition) -> FollowedPartition:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = FollowedPartition(self, key, wanted)
        else:
            followed.wanted = wanted
        followed.watch(self._partitions.get_partition(*key))
        self._changed[followed] = None
        return followed

    def _forget(self, key: tuple[bytes, int]) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.unwatch()
            self._changed.pop(followed, None)
            self._bounds.pop(followed, None)
            self._deleted.pop(followed, None)

    def _acknowledge(self, followed: FollowedPartition, now: float) -> bool:
        """Tell a partition what the follower has; return whether it is led here, in this epoch."""
        partition, wanted = followed.partition, followed.wanted
        if partition is None or wanted.current_leader_epoch != partition.leader_epoch:
            return False
        if (
            not partition.log.log_start_offset
            <= wanted.fetch_offset
            <= partition.log.log_end_offset
        ):
            return False
        partition.note_start(self.replica_id, wanted.log_start_offset)
        return partition.fetched(self.replica_id, self.broker_epoch, wanted.fetch_offset, now)

    def _read(self, followed: FollowedPartition, reader: FetchReader) -> PartitionData | None:
        """Return records or the error of a partition; None: nothing is new, or there is no room."""
        self._bounds.pop(followed, None)
        was_there = followed.partition is not None
        followed.watch(self._partitions.get_partition(*followed.key))
        data = PartitionData(
            partition_index=followed.key[1], high_watermark=NO_OFFSET, records=NO_RECORDS
        )
        partition, before = followed.partition, reader.size
        if partition is None:
            data.error_code = self._partitions.why_missing(*followed.key)
            if was_there and data.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                self._deleted[followed] = None
                return None
            reader.failed = True
        elif not followed.has_all and self._throttle.applies(partition, self.replica_id):
            if not self._throttle.is_exhausted:
                reader.read(ReplicaTarget(partition, followed.wanted, data))
                self._throttle.spend(reader.size - before)
        else:
            reader.read(ReplicaTarget(partition, followed.wanted, data))
        if data.error_code:  # sent again until it passes, or the follower forgets the partition
            self._changed[followed] = None
        elif reader.size > before:
            followed.send_bounds(data)
        else:
            if not followed.has_all:  # there was no room
                self._changed[followed] = None
            elif followed.send_bounds(data):
                self._bounds[followed] = data
            return None
        return data


def _by_topic(
    answers: Iterable[tuple[FollowedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    topics: dict[bytes, FetchableTopicResponse] = {}
    for followed, data in answers:
        topic = topics.get(followed.topic_id)
        if topic is None:
            topic = FetchableTopicResponse(topic_id=followed.topic_id, partitions=[])
            topics[followed.topic_id] = topic
        topic.partitions.append(data)
    return list(topics.values())


NO_SESSION: Final = 0
NEW_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

IDLE_S: Final = 60.0
MAX_OF_ONE_REPLICA: Final = 16

_MAX_ID: Final = (1 << 31) - 1

IsLive = Callable[[int, int], bool]


class ReplicaSessions:
    """The sessions of all followers: a bounded number, and none of a broker that is gone.

    ``is_live`` tells whether a broker is registered under an epoch.
    """

    def __init__(
        self,
        partitions: Partitions,
        is_live: IsLive,
        throttle: LeaderThrottle,
        random: Random | None = None,
    ) -> None:
        self._partitions = partitions
        self._is_live = is_live
        self._throttle = throttle
        self._random = random or Random()  # noqa: S311 - ids are told apart, nothing is guarded
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ReplicaSession]:
        return iter(list(self._sessions.values()))

    def session_for(self, request: FetchRequest, now: float) -> ReplicaSession:
        """Return the session that a follower's request continues or begins.

        A request for no session (epoch -1) gets one of its own.

        Raises:
            ApiError: STALE_BROKER_EPOCH if this broker does not know the follower under its
                epoch; FETCH_SESSION_ID_NOT_FOUND; INVALID_FETCH_SESSION_EPOCH.
        """
        replica, broker_epoch = (
            request.replica_state.replica_id,
            request.replica_state.replica_epoch,
        )
        if not self._is_live(replica, broker_epoch):
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {replica} is not known under the epoch {broker_epoch}",
            )
        if request.session_epoch in {NEW_EPOCH, FINAL_EPOCH}:
            self._close(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return self._new(NO_SESSION, replica, broker_epoch)
            return self._begin(replica, broker_epoch, now)
        session = self._sessions.get(request.session_id)
        if session is None or (session.replica_id, session.broker_epoch) != (replica, broker_epoch):
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch()
        return session

    def prune(self, now: float) -> None:
        """Close the sessions of followers that are gone, or idle for long."""
        for session in self:
            is_idle = now - session.asked_at > IDLE_S
            if is_idle or not self._is_live(session.replica_id, session.broker_epoch):
                self._close(session.session_id)

    def close(self) -> None:
        """Close all sessions."""
        for session in self:
            self._close(session.session_id)

    def _begin(self, replica: int, broker_epoch: int, now: float) -> ReplicaSession:
        self.prune(now)
        of_replica = [session for session in self if session.replica_id == replica]
        if len(of_replica) >= MAX_OF_ONE_REPLICA:
            self._close(min(of_replica, key=lambda session: session.asked_at).session_id)
        session_id = self._random.randint(1, _MAX_ID)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _MAX_ID)
        session = self._new(session_id, replica, broker_epoch)
        self._sessions[session_id] = session
        return session

    def _new(self, session_id: int, replica: int, broker_epoch: int) -> ReplicaSession:
        return ReplicaSession(session_id, replica, broker_epoch, self._partitions, self._throttle)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()


BOUNDS_S: Final = 0.01
"""Seconds that new high watermarks wait for records to be sent along with."""


class ReplicaFetch(FetchAnswer):
    """The response to one request of a session. ``on_error`` is called with one that has errors."""

    __slots__ = (
        "_max_bytes",
        "_min_bytes",
        "_on_error",
        "_session",
        "_timer",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        executor: Executor,
        session: ReplicaSession,
        max_bytes: int,
        on_error: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__(purgatory, executor)
        self._session = session
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._min_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, min_bytes: int, seconds: float) -> None:
        """Answer at once if something is new, else wait for that, at most ``seconds``."""
        session = self._session
        if session.waiting is not None:
            session.waiting.supersede()
        response, reader = self._read(with_bounds=seconds <= 0)
        if reader.cold or response.responses or seconds <= 0:
            self.respond(response, reader)
        else:
            self._min_bytes = min_bytes
            session.waiting = self
            self._purgatory.fetches.add(self, seconds)
            if session.has_bounds:
                self.on_bounds()

    def complete(self) -> None:
        """Answer with what is new."""
        self.leave()
        self.respond(*self._read(with_bounds=True))

    def withdraw(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._session.waiting is self:
            self._session.waiting = None

    def on_records(self) -> None:
        """Answer if enough is there to read, or at an urgent change."""
        if self._session.pending >= self._min_bytes or not self._session.pending:
            self._purgatory.schedule(self)

    def on_bounds(self) -> None:
        """Answer in a moment, perhaps with records."""
        if self._timer is None:
            self._timer = self._purgatory.loop.call_later(BOUNDS_S, self._purgatory.schedule, self)

    def supersede(self) -> None:
        """Answer that nothing is new: a later request gets everything."""
        self.answer(FetchResponse(session_id=self._session.session_id, responses=[]))

    def _read(self, *, with_bounds: bool) -> tuple[FetchResponse, FetchReader]:
        reader = FetchReader(self._max_bytes)
        response = self._session.respond(reader, with_bounds=with_bounds)
        if reader.failed:
            self._on_error(response)
        return response, reader
