"""A partition of which this broker holds a replica: its log, its role, and who waits for it.

A partition has one role at a time. As the leader it appends what producers send, and its
:class:`~qbus.broker.partition.followers.Followers` say how far each replica has everything; the
high watermark follows from that. As a follower it appends what its leader has, and its high
watermark is what the leader told. Without a role it refuses everything. Roles come from the
metadata alone, see :mod:`.roles`. The high watermark goes back only where an unclean election takes
records away.

Everything here runs in the event loop. Only flushes and truncations run in threads, one at a time
for each log, and report back to the loop.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER
from qbus.names import INTERNAL_TOPICS
from qbus.records.control import Marker

from ..log import AppendInfo, EpochEnd, Log, Producer, Provenance, Verification
from ..metadata.image import PartitionInfo
from ..metadata.partition_states import Policy, policy
from .events import PartitionEvents
from .flusher import FlushThreads
from .followers import Followers
from .left_open import LeftOpen
from .purgatory import Acknowledgements, AckWaiter, ReplicaWatcher, Watcher
from .stable_storage import StableStorage
from .truncation import LogStorage, Truncation
from .visibility import Visibility

_log = logging.getLogger(__name__)

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1

_FIRST_WITH_NEW_EPOCHS: Final = 2  # of versions of transactions: a new epoch after each (KIP-890)

# To a client a refusal says that nothing was written; this one says "perhaps".
_PERHAPS_WRITTEN: Final = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
_NOT_HERE: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER})


OnRefused = Callable[["Partition"], object]
"""Called with a partition that is paused, whenever it has refused an append."""


class Role(Enum):
    """What this broker is to a partition that it holds."""

    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


class StoreSession:
    """This broker's session with the metadata store, as far as partitions care.

    While it is suspended another broker may lead in our place, so nothing is acknowledged.
    """

    __slots__ = ("is_suspended",)

    def __init__(self) -> None:
        self.is_suspended = False


class Partition:
    """One replica of a partition.

    ``high_watermark`` is the offset below which records are acknowledged and visible. ``error`` is
    what requests to the leader get here: NONE while it is led here, and that is certain.
    ``followers`` is the leader's view of the replicas, and None unless it is led here. A follower's
    fetcher sets ``on_stable``, called whenever ``stable_end`` advanced. Bytes and messages are
    counted since the start, those sent to followers apart from those sent to clients.
    """

    __slots__ = (
        "_acks",
        "_events",
        "_left_open",
        "_pauses",
        "_refuses",
        "_session",
        "_stable",
        "_storage",
        "_target_count",
        "_truncation",
        "_visibility",
        "bytes_in",
        "bytes_out",
        "committed_watchers",
        "error",
        "followers",
        "high_watermark",
        "index",
        "leader_epoch",
        "leader_id",
        "log",
        "messages_in",
        "min_insync_replicas",
        "on_stable",
        "replica_watchers",
        "replicated_bytes",
        "start_waiters",
        "topic",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        flusher: FlushThreads,
        storage: LogStorage,
        session: StoreSession,
        events: "PartitionEvents[Partition]",
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.min_insync_replicas = 1
        known = min(log.checkpointed_high_watermark, log.log_end_offset)
        self.high_watermark = max(known, log.log_start_offset)
        # The role
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.followers: Followers | None = None
        self.on_stable: Callable[[], None] | None = None
        # Who waits
        self._visibility = Visibility(log)
        self.watchers: dict[Watcher, None] = self._visibility.watchers
        self.committed_watchers: dict[Watcher, None] = self._visibility.committed_watchers
        self.replica_watchers: dict[ReplicaWatcher, None] = {}
        self.start_waiters: set[asyncio.Event] = set()
        # What was counted
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.replicated_bytes = 0
        self._stable = StableStorage(log, flusher, self._stabilized, self._flush_failed)
        self._pauses: dict[str, OnRefused | None] = {}  # by reason
        self._refuses = self._refusal  # what clients' records are refused with
        self._storage = storage
        self._truncation = Truncation()
        self._session = session
        self._events = events
        self._acks = Acknowledgements()
        self._left_open = LeftOpen(is_mirror=bool(log.config.qbus_mirror_source))
        log.advance_stable(self.high_watermark)
        self._target_count = 1  # replicas that it is to have, once no reassignment is under way

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # What it is

    @property
    def role(self) -> Role:
        """What this broker is to the partition now."""
        if self.followers is not None:
            return Role.LEADER
        return Role.NONE if self.leader_id == NO_LEADER else Role.FOLLOWER

    @property
    def is_leader(self) -> bool:
        """Whether it is led here."""
        return self.followers is not None

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas, as its leader knows; none elsewhere."""
        return () if self.followers is None else self.followers.state.isr

    @property
    def min_isr(self) -> int:
        """How many in-sync replicas ``acks=all`` needs, as its leader knows; 0 elsewhere.

        That is ``min.insync.replicas``, but no more than there are replicas: Kafka's
        ``Partition.effectiveMinIsr``.
        """
        return 0 if self.followers is None else self.followers.wanted.min_isr

    @property
    def replica_count(self) -> int:
        """How many replicas there are, as its leader knows; 0 elsewhere."""
        return 0 if self.followers is None else len(self.followers.replicas)

    @property
    def lag(self) -> int:
        """The largest follower lag, in records, as its leader knows; 0 elsewhere."""
        if self.followers is None:
            return 0
        return max(self.followers.lag(self.log.log_end_offset).values(), default=0)

    @property
    def durable(self) -> bool:
        """Whether it acknowledges what is on stable storage; else what is written."""
        return self._stable.durable

    @property
    def stable_end(self) -> int:
        """Up to where this replica has everything, on stable storage if the topic wants that."""
        return self._stable.end

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a flush, and none is under way."""
        return self._stable.is_behind

    @property
    def is_unflushed(self) -> bool:
        """Whether records are not on stable storage yet."""
        return self.log.flushed_offset < self.log.log_end_offset

    @property
    def visible_end(self) -> int:
        """Where the log ends as far as consumers are told: not behind hidden batches."""
        return self._visibility.visible_end(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The offset before which all transactions have ended, by markers that are acknowledged.

        At most the high watermark; it goes back only together with that.
        """
        return self._visibility.last_stable_offset(self.high_watermark)

    @property
    def committed_end(self) -> int:
        """Where the log ends for consumers of committed records: as :attr:`visible_end`."""
        return self._visibility.committed_end(self.high_watermark)

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be read from the log here: its disk failed, or it is damaged."""
        return self.error is ErrorCode.KAFKA_STORAGE_ERROR or not self.log.is_usable

    def check(self, leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """What a client gets that takes this broker for the leader in ``leader_epoch``.

        KIP-320: -1 skips the check, an older epoch is fenced, a newer one is not known here yet.
        """
        if self.error or leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return self.error
        return self._check_epoch(leader_epoch)

    def check_readable(self, leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """The same for a client that may read from a follower as well (KIP-392)."""
        if self.error and self.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self.error
        if self.leader_epoch == NO_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return ErrorCode.NONE
        return self._check_epoch(leader_epoch)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where ``epoch`` ended, or the nearest older one that has records; -1, -1: unknown."""
        log = self.log
        return log.epoch_cache.end_of(epoch, log.log_end_offset, self.leader_epoch)

    # Roles

    def lead(self, info: PartitionInfo, now: float) -> None:
        """Be the leader, in the state that the store has; ``now`` is monotonic, in seconds.

        A state that is older than what is known here changes nothing.
        """
        if info.leader_epoch < self.leader_epoch:
            return
        if self.followers is not None and info.leader_epoch == self.leader_epoch:
            self.followers.assign(info.replicas, now)
            self.followers.wanted = self._policy(len(info.target))
            self.followers.learned(info.state(), info.version)
        else:
            self._begin_to_lead(info, now)
        self._abort_left_open()
        self.advance()

    def follow(self, leader: int, leader_epoch: int) -> None:
        """Follow ``leader``, or NO_LEADER; its fetcher does the rest."""
        if leader_epoch < self.leader_epoch or self._follows(leader, leader_epoch):
            return
        self.leader_id = leader
        self.leader_epoch = leader_epoch
        self._step_down(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, code: ErrorCode) -> None:
        """Answer ``code`` to everything from now on: it can neither be led nor followed here.

        Requests that wait get the same if the topic is gone. Otherwise what they appended may be
        kept, so they must not hear that it was refused: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        self.leader_id = NO_LEADER
        self._step_down(code)

    def suspect(self) -> None:
        """Serve nobody as the leader until it is known again who leads."""
        if self.followers is not None and not self.error:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._acks.refuse(self._after_append)
            self._wake_all()

    def resume(self) -> None:
        """Serve again as the leader, if it is led here."""
        if self.followers is not None and self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.error = ErrorCode.NONE
            self._abort_left_open()
            self._wake_all()

    def may_be_deposed(self, asked_since: float) -> bool:
        """Whether others may lead it by now: some could, and none has fetched since then."""
        if self.followers is None:
            return False
        state = self.followers.state
        could_lead = {*state.isr, *state.elr} - {self.leader_id}
        return bool(could_lead) and all(
            watcher.asked_at < asked_since for watcher in self.replica_watchers
        )

    def configure(self, *, durable: bool, min_insync_replicas: int) -> None:
        """Apply changed settings; the log has its own."""
        self._stable.durable = durable
        self.min_insync_replicas = min_insync_replicas
        if self.followers is not None:
            self.followers.wanted = self._policy(self._target_count)
        is_mirror = bool(self.log.config.qbus_mirror_source)
        self._left_open.become(is_mirror=is_mirror, producers=self.log.producers)
        self._abort_left_open()
        self._catch_up_with_log()

    def _abort_left_open(self) -> None:
        if self._left_open and self.followers is not None and not self.error:
            self._left_open.abort(self.log.producers, self._abort, str(self))

    def _abort(self, producer: Producer, coordinator_epoch: int) -> None:
        self.end_transaction(
            producer.producer_id, producer.epoch, coordinator_epoch, committed=False
        )

    def _begin_to_lead(self, info: PartitionInfo, now: float) -> None:
        end = self.log.log_end_offset
        self.leader_id = info.leader
        self.leader_epoch = info.leader_epoch
        self.followers = Followers(
            info.leader,
            info.replicas,
            info.state(),
            info.version,
            wanted=self._policy(len(info.target)),
            epoch_start=end,
            high_watermark=min(self.high_watermark, end),
            now=now,
        )
        self.error = ErrorCode.NONE
        self.on_stable = None
        self._catch_up_with_log()
        self._wake_all()
        for leading in self._events.leading:
            leading(self, info.leader_epoch)

    def _step_down(self, code: ErrorCode) -> None:
        if self.followers is not None:
            for stepping_down in self._events.stepping_down:
                stepping_down(self, code)
        for waiter in self.start_waiters:
            waiter.set()
        self.error = code
        self.followers = None
        self.on_stable = None
        self._acks.refuse(self._after_append)
        self._wake_all()

    def _follows(self, leader: int, leader_epoch: int) -> bool:
        known = (self.leader_id, self.leader_epoch, self.error)
        return known == (leader, leader_epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _check_epoch(self, leader_epoch: int) -> ErrorCode:
        if leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _policy(self, replicas: int) -> Policy:
        self._target_count = replicas
        return policy(self.min_insync_replicas, replicas, is_durable=self._stable.durable)

    # Leading: append, and acknowledge what the in-sync replicas have

    def append(
        self, batch: memoryview, acks: int, verification: Verification | None = None
    ) -> AppendInfo:
        """Append one batch, which is changed in place.

        The first one of a transaction needs the ``verification`` that was begun for it.

        Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, or what the log refuses the batch with.
        """
        if self.error or self._refuses:
            raise self._refused(self._refuses)
        if acks == ACKS_ALL:
            self._check_in_sync()
        info = self.log.append(batch, self.leader_epoch, verification)
        if not info.duplicate:
            end = info.last_offset + 1
            self._appended(end, len(batch), end - info.first_offset)
        return info

    def append_own(self, batches: bytearray, records: int, acks: int = ACKS_ALL) -> AppendInfo:
        """Append whole batches of the broker's own making.

        ``records`` is how many of their records were not in the log before. Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR: the first of them may
                have been appended.
        """
        if self.error or self._pauses:
            raise self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL:
            self._check_in_sync()
        before = self.log.log_end_offset
        try:
            return self.log.append_own(batches, self.leader_epoch)
        finally:
            end = self.log.log_end_offset
            if end > before:
                self._appended(end, len(batches), records)

    def check_takes_own(self) -> None:
        """Raise what :meth:`append_own` would raise before it appends anything."""
        if self.error or self._pauses:
            raise self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._check_in_sync()

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, begins_with_zero: bool = False
    ) -> Verification | None:
        """Begin to ask a transaction's coordinator whether this partition belongs to it.

        None: the transaction is open here, so there is nothing to ask. Else the first batch is
        appended with what this returns, once the coordinator said yes. Batches that wait meanwhile
        share it. ``begins_with_zero``: the producer gets a new epoch for each transaction.

        Raises:
            ApiError: ``error``.
        """
        if self.error:
            raise ApiError(self.error)
        return self.log.begin_verification(
            producer_id, epoch, sequence, begins_with_zero=begins_with_zero
        )

    def check_transaction(
        self, producer_id: int, epoch: int, verification: Verification | None, sequence: int = 0
    ) -> None:
        """Check that a batch of a transaction may be appended, which :meth:`append_own` does not.

        Raises:
            ApiError: ``error``, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
                OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if self.error:
            raise ApiError(self.error)
        self.log.check_transaction(producer_id, epoch, sequence, verification)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        version: int = 1,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction; it counts once acknowledged.

        ``version`` is that of transactions (the feature ``transaction.version``): from 2 on the
        epoch is the one that the producer has after the transaction.

        Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR; POLICY_VIOLATION for a mirror.
        """
        self.check_takes_own()
        if self._left_open.is_mirror:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self} is a mirror: its source ends it")
        info = self.log.end_transaction(
            producer_id,
            epoch,
            Marker(committed, coordinator_epoch),
            self.leader_epoch,
            is_new_epoch=version >= _FIRST_WITH_NEW_EPOCHS,
        )
        if not info.duplicate:
            end = info.last_offset + 1
            self._appended(end, info.size, 0)
            for ended in self._events.transaction_ended:
                ended(self, producer_id, epoch, committed)
        return info

    def append_mirrored(self, batches: memoryview, provenance: Provenance) -> AppendInfo:
        """Append what another cluster's log has; leader epochs are changed in place.

        For acks=all alone. A log that was empty may then start with a later offset.

        Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, or what the log refuses the batches with.
        """
        if self.error or self._refuses:
            raise self._refused(self._refuses)
        self._check_in_sync()
        log = self.log
        before = log.log_end_offset
        size, records = len(batches), 0  # as far as is known, should that fail half-way
        try:
            info = log.append_mirrored(batches, provenance, self.leader_epoch)
            size, records = info.size, info.records
            return info
        finally:
            end, start = log.log_end_offset, log.log_start_offset
            if self.followers is not None and start > self.followers.high_watermark:
                self.followers.high_watermark = start  # there is nothing below it
                self._reach(start)
            if end > before:
                self._appended(end, size, records)

    def when_acknowledged(self, end_offset: int, waiter: AckWaiter, token: object) -> None:
        """Tell ``waiter`` when everything below ``end_offset`` is acknowledged."""
        if self.error:
            waiter.acknowledged(token, self._after_append)
        else:
            self._acks.add(end_offset, waiter, token)

    def fetched(self, replica: int, broker_epoch: int, offset: int, now: float) -> bool:
        """Note that a replica has everything before ``offset``.

        Returns:
            Whether it is one of ours, and current.
        """
        followers = self.followers
        end_offset = self.log.log_end_offset
        if followers is None or not followers.asked(replica, broker_epoch, offset, end_offset, now):
            return False
        self.advance()
        return True

    def note_start(self, replica: int, offset: int) -> None:
        """Note that a follower's log starts at ``offset``."""
        if self.followers is not None:
            self.followers.starts_at(replica, offset)
            for waiter in self.start_waiters:
                waiter.set()

    def advance(self) -> None:
        """Advance the high watermark as far as the in-sync replicas let it, if it is led here."""
        if self.followers is not None:
            self._advance(self.followers, self._stable.end)

    def delete_records_before(self, offset: int) -> int:
        """Let the log start with ``offset``, and soon its followers' logs; return where it does.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, or the log's directory failed.
        """
        start = self.log.delete_records_before(offset)
        for watcher in self.replica_watchers:
            watcher.changed(at_once=False)
        return start

    def _check_in_sync(self) -> None:
        lack = self.lack
        if lack:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, lack)

    @property
    def lack(self) -> str:
        """What keeps it from taking what all in-sync replicas are to have; empty: nothing."""
        followers = self.followers  # and no properties: this is asked for every batch
        if self._session.is_suspended:
            return "whether this broker still leads is not known"
        if followers is not None and len(followers.state.isr) < followers.wanted.min_isr:
            return f"{self} has {len(self.isr)} in-sync replicas, {self.min_isr} needed"
        return ""

    def _appended(self, end: int, size: int, records: int) -> None:
        self.bytes_in += size
        self.messages_in += records
        self._written(end, size)
        for watcher in self.replica_watchers:
            watcher.appended(size)
        for appended in self._events.appended:
            appended(self, end, size)

    @property
    def _after_append(self) -> ErrorCode:
        return _PERHAPS_WRITTEN if self.error in _NOT_HERE else self.error

    # Appending nothing for a moment

    @property
    def is_paused(self) -> bool:
        """Whether all appends are refused for now."""
        return bool(self._pauses)

    def pause_appends(self, reason: str, on_refused: OnRefused | None = None) -> None:
        """Refuse all appends until ``reason`` is resumed; what was appended is acknowledged.

        The error is NOT_LEADER_OR_FOLLOWER, after which clients try again. ``on_refused`` is called
        with the partition for each append that is refused.
        """
        self._pauses[reason] = on_refused
        self._refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def resume_appends(self, reason: str) -> None:
        """Take appends again, unless another reason keeps it paused."""
        self._pauses.pop(reason, None)
        if not self._pauses:
            self._refuses = self._refusal

    def _refused(self, code: ErrorCode) -> ApiError:
        """The error of an append that is refused."""
        if self.error:
            return ApiError(self.error)
        for on_refused in self._pauses.values():
            if on_refused is not None:
                on_refused(self)
        return ApiError(code)

    @property
    def _refusal(self) -> ErrorCode:
        """What clients may never write to: the topics of the system's own."""
        if self.topic in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE

    @property
    def is_settled(self) -> bool:
        """Whether no acknowledgement is owed, and no thread works on the log."""
        return not (self._acks or self._stable.is_flushing or self.is_truncating)

    # Following: as the leader says, and nothing of its own

    def append_from_leader(self, records: memoryview) -> None:
        """Append batches as the leader has them; ``stable_end`` follows, see ``on_stable``.

        Raises:
            ApiError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR: none of them, or only the first.
        """
        before = self.log.log_end_offset
        try:
            self.log.append_as_follower(records)
        finally:
            end = self.log.log_end_offset
            if end > before:
                self._written(end, len(records))

    def learn_high_watermark(self, offset: int, leader_log_start: int) -> None:
        """Take over what the leader's answer tells, after its records were appended."""
        log = self.log
        end = log.log_end_offset
        if log.log_start_offset < leader_log_start <= end:
            log.delete_records_before(leader_log_start)
        reached = max(min(offset, end), log.log_start_offset)
        if reached > self.high_watermark:
            self._reach(reached)

    async def truncate(self, offset: int) -> None:
        """Cut the log back to ``offset``; stable on return.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER when it is led here, KAFKA_STORAGE_ERROR.
        """
        await self._truncate(self._storage.truncate, offset)

    async def truncate_fully(self, start_offset: int) -> None:
        """Drop everything, be it corrupt, and go on with ``start_offset``; stable on return.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER when it is led here, KAFKA_STORAGE_ERROR.
        """
        await self._truncate(self._storage.restart_at, start_offset)

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation is under way."""
        return self._truncation.is_under_way

    async def truncated(self) -> None:
        """Wait until no truncation is under way: only then it may be led here."""
        await self._truncation.over()

    async def _truncate(self, cut: Callable[[str, int, int], object], offset: int) -> None:
        await self.truncated()
        if self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led here")
        await self._truncation.run(
            partial(cut, self.topic, self.index, offset), self._after_truncation
        )

    def _after_truncation(self) -> None:
        log = self.log
        kept = min(self.high_watermark, log.log_end_offset)
        self.high_watermark = max(kept, log.log_start_offset)
        self._visibility.forget()
        log.advance_stable(self.high_watermark)

    # Stable storage and the high watermark

    def flush(self) -> None:
        """Begin to flush what is written, unless a flush is under way."""
        self._stable.flush()

    def wake(self) -> None:
        """Have readers that wait look again."""
        self._visibility.wake()

    def _written(self, end: int, size: int) -> None:
        """Go on after records up to ``end``, of ``size`` bytes, came into the log."""
        self._visibility.written(end, size)
        if self._stable.written(end):
            self._stabilized(end)

    def _flush_failed(self, error: BaseException) -> None:
        _log.error("flushing %s failed: %s", self, error)
        # A shortage passes: maintenance begins the next flush, and whoever waits goes on waiting.
        # A log that is not usable any more is refused.
        if not self.log.is_usable:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR)

    def _stabilized(self, stable_end: int) -> None:
        if self.followers is not None:
            self._advance(self.followers, stable_end)
        elif self.on_stable is not None:
            self.on_stable()

    def _catch_up_with_log(self) -> None:
        """Bring the high watermark, and what is stable, to where durability wants them."""
        if self._stable.is_behind and self.log.is_usable:
            self._stable.flush()
        self.advance()

    def _advance(self, followers: Followers, stable_end: int) -> None:
        if not self._session.is_suspended and followers.advance(stable_end):
            self._reach(followers.high_watermark)

    def _reach(self, offset: int) -> None:
        """Let the high watermark be ``offset``: acknowledge, and let readers see."""
        log, visibility = self.log, self._visibility
        seen = visibility.watched_ends(self.high_watermark)
        if log.has_transactions:  # first: from the next step on readers may ask what is stable
            log.advance_stable(offset)
        self.high_watermark = offset
        self._acks.advance(offset)
        visibility.moved(self.high_watermark, seen)
        for replica in self.replica_watchers:
            replica.changed(at_once=False)
        for moved in self._events.high_watermark_moved:
            moved(self, offset)

    def _wake_all(self) -> None:
        self.wake()
        for watcher in self.replica_watchers:
            watcher.changed(at_once=True)
