"""What a leader does: append, and let the high watermark move on as its followers do."""

import asyncio

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER

from ..log import AppendInfo, Log, Provenance
from .acknowledgements import Acknowledgements, AckWaiter
from .flusher import Flusher
from .follower_replica import FollowerReplica, Storage
from .followers import Followers
from .watchers import ReplicaWatcher

ACKS_ALL = -1
NO_EPOCH = -1

# What a client is told to be refused was not written, for all it knows; this says "perhaps".
_PERHAPS_WRITTEN = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
_NOT_HERE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class Session:
    """This broker's session with the metadata store, as far as partitions care.

    While it is in doubt another broker may lead in our place, so nothing is acknowledged.
    """

    __slots__ = ("is_suspended",)

    def __init__(self) -> None:
        self.is_suspended = False


class LeaderReplica(FollowerReplica):
    """What can be led here as well as followed, though not at once.

    ``error`` is what requests to its leader get here at the moment: NONE while it is led here, and
    that is not in doubt. While it is led here ``followers`` says what is known of the others. Bytes
    and messages are counted since the start, those for followers apart from those for clients.
    """

    __slots__ = (
        "_acks",
        "_session",
        "bytes_in",
        "bytes_out",
        "error",
        "followers",
        "leader_epoch",
        "leader_id",
        "messages_in",
        "min_insync_replicas",
        "replica_watchers",
        "replicated_bytes",
        "start_waiters",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        flusher: Flusher,
        storage: Storage,
        session: Session,
    ) -> None:
        super().__init__(topic, index, log, flusher, storage)
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.min_insync_replicas = 1
        self.followers: Followers | None = None
        self.replica_watchers: dict[ReplicaWatcher, None] = {}
        self.start_waiters: set[asyncio.Event] = set()
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.replicated_bytes = 0
        self._session = session
        self._acks = Acknowledgements()

    @property
    def is_leader(self) -> bool:
        """Whether it is led here."""
        return self.followers is not None

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync, as its leader knows; none elsewhere."""
        return () if self.followers is None else self.followers.state.isr

    @property
    def min_isr(self) -> int:
        """How many replicas in sync ``acks=all`` asks for, as its leader knows; 0 elsewhere.

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
        """How many records that follower of what is led here lacks that lacks most."""
        if self.followers is None:
            return 0
        return max(self.followers.lag(self.log.log_end_offset).values(), default=0)

    def append(self, batch: memoryview, acks: int) -> AppendInfo:
        """Append one batch, which is changed in place.

        Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, or what the log refuses the batch with.
        """
        if self.error:
            raise ApiError(self.error)
        if acks == ACKS_ALL:
            self._check_in_sync()
        info = self.log.append(batch, self.leader_epoch)
        if not info.duplicate:
            end = info.last_offset + 1
            self._appended(end, len(batch), end - info.first_offset)
        return info

    def append_mirrored(self, batches: memoryview, provenance: Provenance) -> AppendInfo:
        """Append what another cluster's log has; leader epochs are changed in place.

        For acks=all alone. A log that was empty may start with a later offset then.

        Raises:
            ApiError: ``error``, NOT_ENOUGH_REPLICAS, or what the log refuses the batches with.
        """
        if self.error:
            raise ApiError(self.error)
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
            waiter.settled(token, self._after_append)
        else:
            self._acks.add(end_offset, waiter, token)

    def asked(self, replica: int, broker_epoch: int, offset: int, now: float) -> bool:
        """A replica has everything before ``offset``; whether it is one of ours, and current."""
        followers = self.followers
        end_offset = self.log.log_end_offset
        if followers is None or not followers.asked(replica, broker_epoch, offset, end_offset, now):
            return False
        self.advance()
        return True

    def may_be_deposed(self, asked_since: float) -> bool:
        """Whether others may lead it by now: some could, and none has followed here since then."""
        if self.followers is None:
            return False
        state = self.followers.state
        could_lead = {*state.isr, *state.elr} - {self.leader_id}
        return bool(could_lead) and all(
            watcher.asked_at < asked_since for watcher in self.replica_watchers
        )

    def doubt(self) -> None:
        """Serve nobody as its leader until it is known again who leads it."""
        if self.followers is not None and not self.error:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._acks.refuse(self._after_append)
            self._tell_all()

    def trust(self) -> None:
        """Serve again as its leader, if it is led here."""
        if self.followers is not None and self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.error = ErrorCode.NONE
            self._tell_all()

    def told_start(self, replica: int, offset: int) -> None:
        """A follower's log starts at ``offset``."""
        if self.followers is not None:
            self.followers.starts_at(replica, offset)
            for waiter in self.start_waiters:
                waiter.set()

    def advance(self) -> None:
        """Move the high watermark as far as the replicas in sync let it, if it is led here."""
        if self.followers is not None:
            self._advance(self.followers, self.stable_end)

    def delete_records_before(self, offset: int) -> int:
        """Let the log start with ``offset``, and soon its followers' logs, too; where it does then.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, or the log's directory failed.
        """
        start = self.log.delete_records_before(offset)
        for watcher in self.replica_watchers:
            watcher.changed(at_once=False)
        return start

    # What follows from the log

    def _appended(self, end: int, size: int, records: int) -> None:
        self.bytes_in += size
        self.messages_in += records
        self._written(end, size)
        for watcher in self.replica_watchers:
            watcher.appended(size)

    def _advance(self, followers: Followers, stable_end: int) -> None:
        if not self._session.is_suspended and followers.advance(stable_end):
            self._reach(followers.high_watermark)

    def _reach(self, offset: int) -> None:
        self.high_watermark = offset
        self._acks.reach(offset)
        self._show(offset)
        for watcher in self.replica_watchers:
            watcher.changed(at_once=False)

    def _tell_all(self) -> None:
        self.wake()
        for watcher in self.replica_watchers:
            watcher.changed(at_once=True)

    def _check_in_sync(self) -> None:
        followers = self.followers  # and no properties: this is asked for every batch
        if self._session.is_suspended:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "whether this broker still leads is not known"
            )
        if followers is not None and len(followers.state.isr) < followers.wanted.min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr)} in-sync replicas, {self.min_isr} needed",
            )

    @property
    def _after_append(self) -> ErrorCode:
        return _PERHAPS_WRITTEN if self.error in _NOT_HERE else self.error
