"""A partition of which this broker holds a replica: its leader, or one that follows.

It has one role at a time. The leader's high watermark is what :mod:`.followers` makes of how far
each replica has everything; a follower's is what its leader told. It never goes back but where an
unclean election takes records away.
"""

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import NO_LEADER

from ..log import AppendInfo, EpochEnd, Log
from ..metadata_image import PartitionInfo
from ..partition_states import Policy, policy
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


class Partition(FollowerReplica):
    """One partition that this broker holds a replica of.

    ``error`` is what requests to its leader get here at the moment: NONE while it is led here; then
    ``followers`` says what is known of the others. Bytes and messages are counted since the start,
    those for followers apart from those for clients.
    """

    __slots__ = (
        "_acks",
        "_session",
        "_target_count",
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
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.replicated_bytes = 0
        self._session = session
        self._target_count = 1  # replicas that it is to have, once it does not move any more
        self._acks = Acknowledgements()

    # Roles

    @property
    def is_leader(self) -> bool:
        """Whether it is led here."""
        return self.followers is not None

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync, as its leader knows; none elsewhere."""
        return () if self.followers is None else self.followers.state.isr

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

    def lead(self, info: PartitionInfo, now: float) -> None:
        """Be the leader, in the state that the store has; ``now`` is monotonic, in seconds.

        What is older than what is known here changes nothing.
        """
        if info.leader_epoch < self.leader_epoch:
            return
        if self.followers is not None and info.leader_epoch == self.leader_epoch:
            self.followers.assign(info.replicas, now)
            self.followers.wanted = self._policy(len(info.target))
            self.followers.learned(info.state(), info.version)
        else:
            self._begin_to_lead(info, now)
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

        Those who wait hear the same of a topic that is gone. Otherwise what they appended may be
        kept, so they must not be told that it was refused: NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        self.leader_id = NO_LEADER
        self._step_down(code)

    def configure(self, *, durable: bool, min_insync_replicas: int) -> None:
        """Take changed settings over; the log has its own."""
        self.durable = durable
        self.min_insync_replicas = min_insync_replicas
        if self.followers is not None:
            self.followers.wanted = self._policy(self._target_count)
        self.catch_up_with_log()

    def check(self, leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """What a client gets that takes this partition to be led here in ``leader_epoch``.

        KIP-320: -1 skips the check, an older epoch is fenced, a newer one not known here yet.
        """
        if self.error or leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return self.error
        return self._check_epoch(leader_epoch)

    def check_readable(self, leader_epoch: int = NO_EPOCH) -> ErrorCode:
        """The same for one that may read from a follower as well (KIP-392)."""
        if self.error and self.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return self.error
        if self.leader_epoch == NO_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return ErrorCode.NONE
        return self._check_epoch(leader_epoch)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where ``epoch`` ended, or the nearest older one that has records; -1, -1: unknown."""
        end_offset = self.log.log_end_offset
        epochs = self.log.epoch_cache
        latest = epochs.latest_epoch
        if latest < epoch <= self.leader_epoch:  # epochs without records, up to this leader's
            older = epoch if epoch == self.leader_epoch or latest < 0 else latest
            return EpochEnd(older, end_offset)
        return epochs.end_offset_for(epoch, end_offset)

    # Leading

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
            end, size = info.last_offset + 1, len(batch)
            self.bytes_in += size
            self.messages_in += end - info.first_offset
            self._written(end, size)
            for watcher in self.replica_watchers:
                watcher.appended(size)
        return info

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

    def advance(self) -> None:
        """Move the high watermark as far as the replicas in sync let it, if it is led here."""
        followers = self.followers
        if followers is None or self._session.is_suspended:
            return
        if followers.advance(self.stable_end):
            self._reach(followers.high_watermark)

    # What follows from the log

    def catch_up_with_log(self) -> None:
        """Bring the high watermark, and what is stable, to where durability wants them."""
        if self.is_behind:
            self.flush()
        self.advance()

    def _stabilized(self) -> None:
        if self.followers is not None:
            self.advance()
        elif self.on_stable is not None:
            self.on_stable()

    def _failed(self) -> None:
        # A shortage passes: upkeep begins the next flush, and whoever waits goes on waiting.
        if not self.log.is_usable:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR)

    def _reach(self, offset: int) -> None:
        self.high_watermark = offset
        self._acks.reach(offset)
        self._show(offset)
        for watcher in self.replica_watchers:
            watcher.changed(at_once=False)

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
        self.catch_up_with_log()
        self._tell_all()

    def _step_down(self, code: ErrorCode) -> None:
        self.error = code
        self.followers = None
        self.on_stable = None
        self._acks.refuse(self._after_append)
        self._tell_all()

    def _tell_all(self) -> None:
        self.wake()
        for watcher in self.replica_watchers:
            watcher.changed(at_once=True)

    def _follows(self, leader: int, leader_epoch: int) -> bool:
        known = (self.leader_id, self.leader_epoch, self.error)
        return known == (leader, leader_epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _check_in_sync(self) -> None:
        isr = self.isr
        if self._session.is_suspended:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "whether this broker still leads is not known"
            )
        if len(isr) < self.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(isr)} in-sync replicas, {self.min_insync_replicas} needed",
            )

    def _check_epoch(self, leader_epoch: int) -> ErrorCode:
        if leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _policy(self, replicas: int) -> Policy:
        self._target_count = replicas
        return policy(self.min_insync_replicas, replicas, is_durable=self.durable)

    @property
    def _after_append(self) -> ErrorCode:
        return _PERHAPS_WRITTEN if self.error in _NOT_HERE else self.error
