"""Fetching by followers, in sessions (KIP-227): what each follower has, and what is new for it.

A request names only the partitions that changed for the follower since the one before, an answer
only those that changed here. A session watches its partitions all the time and keeps those that
changed, so an answer costs what is new, however many partitions there are. The offset that a
follower asks for says what it has; of a partition that it does not name, it still has the same.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Protocol

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

from ..log import LogSlice
from ..partition.leader_throttle import LeaderThrottle
from ..partition.partition import NO_EPOCH, Partition
from ..partition.purgatory import Delayed, Purgatory
from .fetch_reader import NO_OFFSET, NO_RECORDS, FetchReader, FetchTarget


class ReplicaTarget(FetchTarget):
    """One partition of a follower's request, and its answer."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """A follower is given what is not acknowledged, too: it is to acknowledge it."""
        return self.partition.log.log_end_offset

    def check(self) -> ErrorCode:
        """A follower has to know in which epoch it follows: its log was made to agree for that."""
        epoch = self.wanted.current_leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if epoch == NO_EPOCH else self.partition.check(epoch)

    def give(self, records: LogSlice) -> None:
        """Answer with ``records``."""
        self.data.records = records
        self.partition.replicated_bytes += len(records)


class FollowedPartition:
    """A partition of a session: what the follower wants, and what it was told last."""

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
        """When the follower asked last, for whatever of its session."""
        return self._session.asked_at

    def watch(self, partition: Partition | None) -> None:
        """Hear of what becomes different in ``partition``, which is the one of this key now."""
        if partition is not self.partition:
            self.unwatch()
            self.partition = partition
            if partition is not None:
                partition.replica_watchers[self] = None

    def unwatch(self) -> None:
        """Hear of nothing any more."""
        if self.partition is not None:
            self.partition.replica_watchers.pop(self, None)
            self.partition = None

    def tell(self, data: PartitionData) -> bool:
        """The follower is told of the high watermark and the log's start; whether that is new."""
        before = (self._high_watermark, self._log_start)
        self._high_watermark, self._log_start = data.high_watermark, data.log_start_offset
        return before != (data.high_watermark, data.log_start_offset)

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""
        self._session.note(self, size, at_once=True)

    def changed(self, *, at_once: bool) -> None:
        """Something else is different."""
        self._session.note(self, 0, at_once=at_once)


_LAST_EPOCH = (1 << 31) - 1


class Partitions(Protocol):
    """Where the partitions of this broker are found."""

    def get_partition(self, topic: bytes, index: int) -> Partition | None:
        """A partition, if it is here."""

    def why_missing(self, topic: bytes, index: int) -> ErrorCode:
        """What is said of one that is not."""


class Waiting(Protocol):
    """A request of the session that is not answered yet."""

    def on_news(self) -> None:
        """There is more to read, or something that is to be told at once."""

    def on_hint(self) -> None:
        """There is something that may wait a little for records to go along with."""

    def give_up(self) -> None:
        """Another request has come: answer that there is nothing, for that one gets it all."""


class ReplicaSession:
    """The session ``session_id`` of a follower, a broker that is registered under its epoch.

    ``pending`` is how many bytes came since the last answer; ``asked_at`` is when it asked last.
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
        self._news: dict[FollowedPartition, None] = {}
        self._hints: dict[FollowedPartition, PartitionData] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def next_epoch(self) -> None:
        """The request with the expected epoch has come (KIP-227: it never becomes 0 again)."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def take(self, request: FetchRequest, now: float) -> list[Partition]:
        """Note what the follower has, and what it follows; the partitions that it told of."""
        self.asked_at = now
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._forget((topic.topic_id, index))
        told = []
        for wanted_topic in request.topics:
            for wanted in wanted_topic.partitions:
                followed = self._follow((wanted_topic.topic_id, wanted.partition), wanted)
                if followed.partition is not None and self._acknowledge(followed, now):
                    told.append(followed.partition)
        return told

    @property
    def has_hints(self) -> bool:
        """Whether the last answer left something out that may wait for records to go along with."""
        return bool(self._hints)

    def gather(self, reader: FetchReader, *, hints: bool) -> FetchResponse:
        """All that is new, as far as ``reader`` has room; the rest stays for the next time.

        ``hints``: also if that is no more than where high watermarks and logs' starts are.
        """
        self.pending = 0
        news, self._news = self._news, {}
        answers = [(one, data) for one in news if (data := self._read(one, reader)) is not None]
        if answers or hints:
            answers += self._hints.items()
            self._hints = {}
        return FetchResponse(session_id=self.session_id, responses=_by_topic(answers))

    def still_caught_up(self) -> None:
        """Tell the partitions of which the follower has everything that it has it still."""
        for followed in self._followed.values():
            if followed.has_all:
                self._acknowledge(followed, self.asked_at)

    def close(self) -> None:
        """Watch nothing any more."""
        self.waiting = None
        for followed in self._followed.values():
            followed.unwatch()
        self._followed.clear()
        self._news.clear()
        self._hints.clear()

    # What the followed partitions say

    def note(self, followed: FollowedPartition, size: int, *, at_once: bool) -> None:
        """There is news: ``size`` more bytes, or something else, which may be told at once."""
        self._news[followed] = None
        self.pending += size
        if self.waiting is None:
            return
        if size or at_once:
            self.waiting.on_news()
        else:
            self.waiting.on_hint()

    def _follow(self, key: tuple[bytes, int], wanted: FetchPartition) -> FollowedPartition:
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = FollowedPartition(self, key, wanted)
        else:
            followed.wanted = wanted
        followed.watch(self._partitions.get_partition(*key))
        self._news[followed] = None
        return followed

    def _forget(self, key: tuple[bytes, int]) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.unwatch()
            self._news.pop(followed, None)
            self._hints.pop(followed, None)

    def _acknowledge(self, followed: FollowedPartition, now: float) -> bool:
        """Whether what the follower has was told to a partition that is led here, in this epoch."""
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
        """Records or an error of a partition; None: there are none, or there is no room."""
        self._hints.pop(followed, None)
        followed.watch(self._partitions.get_partition(*followed.key))
        data = PartitionData(
            partition_index=followed.key[1], high_watermark=NO_OFFSET, records=NO_RECORDS
        )
        partition, before = followed.partition, reader.size
        if partition is None:
            data.error_code = self._partitions.why_missing(*followed.key)
            reader.failed = True
        elif not followed.has_all and self._throttle.applies(partition, self.replica_id):
            if not self._throttle.is_exhausted:
                reader.read(ReplicaTarget(partition, followed.wanted, data))
                self._throttle.spend(reader.size - before)
        else:
            reader.read(ReplicaTarget(partition, followed.wanted, data))
        if data.error_code:  # until the follower does without, or it is over
            self._news[followed] = None
        elif reader.size > before:
            followed.tell(data)
        else:
            if not followed.has_all:  # no room for it this time
                self._news[followed] = None
            elif followed.tell(data):
                self._hints[followed] = data
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


NO_SESSION = 0
NEW_EPOCH = 0
FINAL_EPOCH = -1

IDLE_S = 60.0
MAX_OF_ONE_REPLICA = 16

_MAX_ID = (1 << 31) - 1

IsLive = Callable[[int, int], bool]


class ReplicaSessions:
    """Opens sessions and closes them: bounded, and none of a broker that is gone.

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
        """The session that a follower's request belongs to, or begins.

        A follower that wants none (epoch -1) gets one for this request alone.

        Raises:
            ApiError: STALE_BROKER_EPOCH, the follower is not registered under its epoch, as far as
                is known here; FETCH_SESSION_ID_NOT_FOUND; INVALID_FETCH_SESSION_EPOCH.
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
        """Close the sessions of those who are gone, or did not ask for long."""
        for session in self:
            is_idle = now - session.asked_at > IDLE_S
            if is_idle or not self._is_live(session.replica_id, session.broker_epoch):
                self._close(session.session_id)

    def close(self) -> None:
        """Close all."""
        for session in self:
            self._close(session.session_id)

    def _begin(self, replica: int, broker_epoch: int, now: float) -> ReplicaSession:
        self.prune(now)
        of_replica = [one for one in self if one.replica_id == replica]
        if len(of_replica) >= MAX_OF_ONE_REPLICA:
            self._close(min(of_replica, key=lambda one: one.asked_at).session_id)
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


HINT_S = 0.01
"""How long what is not urgent waits for records to go along with: where the high watermark is."""


class ReplicaFetch(Delayed[FetchResponse]):
    """The answer to one request of a session. ``on_error`` is given one that has errors in it."""

    __slots__ = (
        "_executor",
        "_hint",
        "_max_bytes",
        "_min_bytes",
        "_on_error",
        "_purgatory",
        "_session",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        executor: Executor,
        session: ReplicaSession,
        max_bytes: int,
        on_error: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__(purgatory.loop)
        self._purgatory = purgatory
        self._executor = executor
        self._session = session
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._min_bytes = 0
        self._hint: asyncio.TimerHandle | None = None

    def begin(self, min_bytes: int, seconds: float) -> None:
        """Answer at once where there is news, else wait for it, ``seconds`` at most."""
        session = self._session
        if session.waiting is not None:
            session.waiting.give_up()
        response, reader = self._gather(hints=seconds <= 0)
        if reader.cold:
            self._read_cold(response, reader)
        elif response.responses or seconds <= 0:
            self.answer(response)
        else:
            self._min_bytes = min_bytes
            session.waiting = self
            self._purgatory.fetches.add(self, seconds)
            if session.has_hints:
                self.on_hint()

    def complete(self) -> None:
        """Read what is new, and answer."""
        self.leave()
        response, reader = self._gather(hints=True)
        if reader.cold:
            self._read_cold(response, reader)
        else:
            self.answer(response)

    def withdraw(self) -> None:
        """Wait for nothing any more."""
        if self._hint is not None:
            self._hint.cancel()
            self._hint = None
        if self._session.waiting is self:
            self._session.waiting = None

    def on_news(self) -> None:
        """There is more to read, or something that is to be told at once."""
        if self._session.pending >= self._min_bytes or not self._session.pending:
            self._purgatory.schedule(self)

    def on_hint(self) -> None:
        """There is something that may wait a little for records to go along with."""
        if self._hint is None:
            self._hint = self._purgatory.loop.call_later(HINT_S, self._purgatory.schedule, self)

    def give_up(self) -> None:
        """Another request has come: answer that there is nothing, for that one gets it all."""
        self.answer(FetchResponse(session_id=self._session.session_id, responses=[]))

    def _gather(self, *, hints: bool) -> tuple[FetchResponse, FetchReader]:
        reader = FetchReader(self._max_bytes)
        response = self._session.gather(reader, hints=hints)
        if reader.failed:
            self._on_error(response)
        return response, reader

    def _read_cold(self, response: FetchResponse, reader: FetchReader) -> None:
        future = self._purgatory.loop.run_in_executor(self._executor, reader.read_cold)
        future.add_done_callback(partial(self._answer_read, response))

    def _answer_read(self, response: FetchResponse, read: asyncio.Future[None]) -> None:
        error = asyncio.CancelledError() if read.cancelled() else read.exception()
        if self.done() or error is not None:
            drop_records(response)
        if isinstance(error, Exception):
            self.fail(error)
        elif error is not None:
            self.cancel()
        else:
            self.answer(response)


def drop_records(response: FetchResponse) -> None:
    """Let go of the records of an answer that is not sent."""
    for topic in response.responses:
        for data in topic.partitions:
            close = getattr(data.records, "close", None)
            if close is not None:
                close()
