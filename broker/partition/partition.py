"""A partition of which this broker holds a replica: its leader, or one that follows.

It has one role at a time. The leader's high watermark is what :mod:`.followers` makes of how far
each replica has everything; a follower's is what its leader told. It never goes back but where an
unclean election takes records away.
"""

from qbus.errors import ErrorCode
from qbus.metadata.znodes import NO_LEADER

from ..log import EpochEnd, Log
from ..metadata.image import PartitionInfo
from ..metadata.partition_states import Policy, policy
from .flusher import Flusher
from .follower_replica import Storage
from .followers import Followers
from .leader_replica import ACKS_ALL, NO_EPOCH, LeaderReplica, Session

__all__ = ["ACKS_ALL", "NO_EPOCH", "Partition", "Session"]


class Partition(LeaderReplica):
    """One partition that this broker holds a replica of: takes the roles that it is given."""

    __slots__ = ("_target_count",)

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        flusher: Flusher,
        storage: Storage,
        session: Session,
    ) -> None:
        super().__init__(topic, index, log, flusher, storage, session)
        self._target_count = 1  # replicas that it is to have, once it does not move any more

    # Roles

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

    # What follows from the log

    def catch_up_with_log(self) -> None:
        """Bring the high watermark, and what is stable, to where durability wants them."""
        if self.is_behind:
            self.flush()
        self.advance()

    def _stabilized(self, stable_end: int) -> None:
        if self.followers is not None:
            self._advance(self.followers, stable_end)
        elif self.on_stable is not None:
            self.on_stable()

    def _failed(self) -> None:
        # A shortage passes: upkeep begins the next flush, and whoever waits goes on waiting.
        if not self.log.is_usable:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR)

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
        for waiter in self.start_waiters:
            waiter.set()
        self.error = code
        self.followers = None
        self.on_stable = None
        self._acks.refuse(self._after_append)
        self._tell_all()

    def _follows(self, leader: int, leader_epoch: int) -> bool:
        known = (self.leader_id, self.leader_epoch, self.error)
        return known == (leader, leader_epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _check_epoch(self, leader_epoch: int) -> ErrorCode:
        if leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _policy(self, replicas: int) -> Policy:
        self._target_count = replicas
        return policy(self.min_insync_replicas, replicas, is_durable=self.durable)
