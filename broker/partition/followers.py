"""What a leader knows of its followers, and what follows: the high watermark, and who is in sync.

A pure state machine: offsets and times in, decisions out. A follower asks for records from the
offset up to which it has them, on stable storage where the topic wants that; so what it asks for is
what it acknowledges. The rules are those of Kafka's replication protocol as its TLA+ specification
has them (``Kip320.tla``), whose invariant StrongIsr it keeps: below the high watermark of a leader,
every replica that is in sync has the same records.

- The high watermark is the least that any replica has which is in sync, or which we have asked the
  store to take for in sync (KIP-497): the store may know it already, and elect it.
- It stands still while too few are in sync, or others are still eligible (see
  :mod:`qbus.broker.metadata.partition_states`).
- A replica comes in sync when it has everything below the high watermark and all of earlier epochs;
  for the registration that it asked under, so that one that was started anew since then, and may
  have lost what it had, is not taken for what it was (KIP-903).
- It is no longer in sync when it has not had everything for ``replica.lag.time.max.ms``.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from qbus.metadata.znodes import PartitionStateNode

from ..metadata.partition_states import Policy, is_acknowledging, with_isr

UNKNOWN: Final = -1


class Follower:
    """A replica as its leader sees it: what it asked for last, and when it last had everything."""

    __slots__ = (
        "_asked_at",
        "_end_then",
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "start_offset",
    )

    def __init__(self, now: float) -> None:
        self.start_offset = UNKNOWN
        self.end_offset = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_at = now
        self._asked_at = now
        self._end_then = 0

    def asked(self, offset: int, end_offset: int, now: float) -> None:
        """It asked for ``offset`` while the log ended at ``end_offset``."""
        if offset >= end_offset:
            self.caught_up_at = now
        elif offset >= self._end_then:  # it has all there was when it asked before
            self.caught_up_at = self._asked_at
        self.end_offset = offset
        self._asked_at = now
        self._end_then = end_offset

    def restarted(self, broker_epoch: int) -> None:
        """It is registered anew: what it has now, nobody knows."""
        self.broker_epoch = broker_epoch
        self.end_offset = UNKNOWN
        self._end_then = 0


class Proposal(NamedTuple):
    """A state to write in place of ``version``, if the brokers it adds still have these epochs."""

    state: PartitionStateNode
    version: int
    added: Mapping[int, int]


class Quorum:
    """What the high watermark depends on, worked out once for a state and what is proposed."""

    __slots__ = ("is_acknowledging", "others", "proposed", "state", "wanted")

    def __init__(
        self,
        state: PartitionStateNode,
        wanted: Policy,
        proposed: Proposal | None,
        node_id: int,
    ) -> None:
        self.state = state
        self.wanted = wanted
        self.proposed = proposed
        self.is_acknowledging = is_acknowledging(state, wanted)
        perhaps_in_sync = {*state.isr, *(proposed.state.isr if proposed is not None else ())}
        self.others = tuple(perhaps_in_sync - {node_id})


class Followers:
    """The followers of a partition, in one epoch of its leader.

    ``state`` is what the store had last, as far as known, at ``version``. At most one change of it
    is proposed at a time; until its outcome is known, both the old and the new state may hold.
    """

    def __init__(
        self,
        node_id: int,
        replicas: tuple[int, ...],
        state: PartitionStateNode,
        version: int,
        *,
        wanted: Policy,
        epoch_start: int,
        high_watermark: int,
        now: float,
    ) -> None:
        """``epoch_start`` is where the leader's log ended when it began to lead."""
        self.state = state
        self.version = version
        self.wanted = wanted
        self.high_watermark = high_watermark
        self.proposed: Proposal | None = None
        self._node_id = node_id
        self._epoch_start = epoch_start
        self._followers = {one: Follower(now) for one in replicas if one != node_id}
        self._quorum = Quorum(state, wanted, None, node_id)

    @property
    def replicas(self) -> tuple[int, ...]:
        """Those that are assigned, the leader included."""
        return (self._node_id, *self._followers)

    @property
    def leads_alone(self) -> bool:
        """Whether the high watermark waits for the leader's own disk and for no other replica."""
        return self._quorum.is_acknowledging and not self._quorum.others

    # What happens.

    def assign(self, replicas: tuple[int, ...], now: float) -> None:
        """Other replicas are to hold the partition from now on.

        One that is taken away and still in sync counts as having nothing, until it is not.
        """
        known = self._followers
        self._followers = {
            one: known.get(one) or Follower(now) for one in replicas if one != self._node_id
        }

    def asked(
        self, replica: int, broker_epoch: int, offset: int, end_offset: int, now: float
    ) -> bool:
        """A replica asked for records from ``offset`` on; whether it is one of ours, and current.

        ``end_offset`` is where the leader's log ends.
        """
        follower = self._followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if broker_epoch > follower.broker_epoch:
            follower.restarted(broker_epoch)
        follower.asked(offset, end_offset, now)
        return True

    def starts_at(self, replica: int, offset: int) -> None:
        """A replica said where its log starts."""
        follower = self._followers.get(replica)
        if follower is not None:
            follower.start_offset = offset

    def learned(self, state: PartitionStateNode, version: int) -> None:
        """The store has ``state`` at ``version``, in the same leader epoch."""
        if version > self.version:
            self.state, self.version = state, version
        if self.proposed is not None and version > self.proposed.version:
            self.proposed = None

    def refused(self) -> None:
        """The store refused what was proposed although ``version`` is what it has.

        Not for a refusal because of the version: what was proposed may have come to pass all the
        same, when its first answer was lost, so that waits for what :meth:`learned` is told.
        """
        self.proposed = None

    # What follows.

    def advance(self, stable_end: int) -> bool:
        """Move the high watermark as far as may be; whether it moved.

        ``stable_end`` is how far the leader itself has everything, on stable storage if need be.
        """
        quorum = self._quorum
        if (
            quorum.state is not self.state
            or quorum.wanted is not self.wanted
            or quorum.proposed is not self.proposed
        ):
            quorum = self._quorum = Quorum(self.state, self.wanted, self.proposed, self._node_id)
        if not quorum.is_acknowledging:
            return False
        reached = stable_end
        for one in quorum.others:
            reached = min(reached, self.end_offset(one))
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def propose(
        self, now: float, max_lag: float, is_live: Callable[[int, int], bool]
    ) -> Proposal | None:
        """The change that is due, if any; its outcome is to be told.

        ``is_live`` tells whether a broker is registered under an epoch. ``max_lag`` is in seconds.
        """
        if self.proposed is not None:
            return None
        isr = tuple(one for one in self.state.isr if not self._is_slow(one, now, max_lag))
        added = {
            one: follower.broker_epoch
            for one, follower in self._followers.items()
            if one not in self.state.isr
            and self._is_ready(follower)
            and now - follower.caught_up_at <= max_lag
            and is_live(one, follower.broker_epoch)
        }
        state = with_isr(self.state, (*isr, *added), self.wanted)
        if state == self.state:
            return None
        self.proposed = Proposal(state, self.version, added)
        return self.proposed

    def end_offset(self, replica: int) -> int:
        """Up to where a replica has everything; UNKNOWN if it never asked, or is none of ours."""
        follower = self._followers.get(replica)
        return UNKNOWN if follower is None else follower.end_offset

    @property
    def is_high_watermark_current(self) -> bool:
        """Whether the high watermark has reached what this leader found when it began to lead.

        Before, earlier leaders may have told of records as acknowledged that it takes for later
        (KIP-207).
        """
        return self.high_watermark >= self._epoch_start

    def caught_up(self, replica: int) -> bool:
        """Whether a replica has everything below the high watermark."""
        return self.end_offset(replica) >= self.high_watermark

    def least_start(self, replicas: Collection[int], start_offset: int) -> int:
        """Where the log starts of that of ``replicas`` that has most; ``start_offset``: of none."""
        known = self._followers.items()
        return min(
            (follower.start_offset for one, follower in known if one in replicas),
            default=start_offset,
        )

    def lag(self, end_offset: int) -> dict[int, int]:
        """How many records each follower lacks; of one that never asked, all."""
        return {
            one: end_offset - max(follower.end_offset, 0)
            for one, follower in self._followers.items()
        }

    def _is_slow(self, replica: int, now: float, max_lag: float) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and now - follower.caught_up_at > max_lag

    def _is_ready(self, follower: Follower) -> bool:
        return follower.end_offset >= max(self.high_watermark, self._epoch_start)
