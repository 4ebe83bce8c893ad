"""One consumer group as a pure state machine: requests and the passing of time in, effects out.

The rules are those of Kafka's classic group protocol as its coordinator applies them: KIP-62
(session and rebalance time-outs), KIP-134 (delayed initial rebalance), KIP-345 (static members),
KIP-394 (known member ids), KIP-559 (protocol checks), KIP-814 (static leaders that come back).

A rebalance has two halves. *Preparing* parks every JoinGroup until all known members are in, or
the slowest one's rebalance time-out has passed; laggards are dropped then. *Completing* starts with
a new generation: everyone is told of it, SyncGroup requests are parked until the one from the
leader brings the assignment, and the group is *Stable*. Whoever has not synced a rebalance time-out
later is dropped, and the group prepares again.

There is no clock and no IO: ``now`` is monotonic seconds, ``wake_at`` says when to call
:meth:`Group.tick` next, and every request handed in is answered by exactly one ``Reply``.
"""

import math
from typing import Self

from qbus.errors import ErrorCode

from .core import GroupCore, GroupLimits
from .image import GroupImage, MemberImage
from .joining import join
from .membership import admit_commit, heartbeat, leave, sync
from .rebalance import end_phase, expire_sessions
from .requests import Effect, Heartbeat, Join, Leave, Request, Sync
from .state import GroupState


class Group(GroupCore):
    """The state machine of one group."""

    def handle(self, request: Request, now: float) -> list[Effect]:
        """Take a request; what to do about it. Its reply may come now or with a later event."""
        self.effects = []
        match request:
            case Join():
                join(self, request, now)
            case Sync():
                sync(self, request, now)
            case Heartbeat():
                heartbeat(self, request, now)
            case Leave():
                leave(self, request, now)
        return self.effects

    def tick(self, now: float) -> list[Effect]:
        """Let time pass: what is due. Meant for ``wake_at``; at other times it does no harm."""
        self.effects = []
        if self.state is GroupState.DEAD:
            return self.effects
        expire_sessions(self, now)
        if self.phase_ends <= now:
            end_phase(self, now)
        self.find_wake_time()
        return self.effects

    def admit_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Whether offsets may be committed by this member of this generation (-1: by anyone)."""
        return admit_commit(self, member_id, instance_id, generation, now)

    def dissolve(self, error: ErrorCode) -> list[Effect]:
        """Turn everyone away: the group is deleted, or no longer served from this memory."""
        self.turn_away(error)
        self.move(GroupState.DEAD, f"dissolved with {error.name}")
        self.phase_ends = self.wake_at = math.inf
        return self.effects

    def turn_away(self, error: ErrorCode) -> list[Effect]:
        """Turn down whatever is parked; the members stay."""
        self.effects = []
        for member_id in [*self.joining, *self.syncing]:
            self.refuse_parked(member_id, error)
        return self.effects

    @property
    def is_vacant(self) -> bool:
        """Whether nobody is in it or about to be."""
        return not self.members and not self.pending

    def image(self) -> GroupImage:
        """What must survive a restart: the group as its established members know it."""
        members = tuple(MemberImage.of(member) for member in self.members if not member.is_new)
        if not members:
            return GroupImage(GroupState.EMPTY, self.generation, self.protocol_type, None, None)
        established = [member.member_id for member in members]
        leader = self.leader if self.leader in established else established[0]
        return GroupImage(
            self.state, self.generation, self.protocol_type, self.protocol, leader, members
        )

    @classmethod
    def restore(
        cls, group_id: str, image: GroupImage, now: float, limits: GroupLimits | None = None
    ) -> Self:
        """The group that ``image`` was taken of, with every time-out started afresh."""
        group = cls(group_id, limits)
        group.state = image.state
        group.generation = image.generation
        group.protocol_type, group.protocol = image.protocol_type, image.protocol
        group.leader = image.leader
        for member_image in image.members:
            member = member_image.restore()
            group.members.add(member)
            group.extend_session(member, now)
        if image.state is GroupState.COMPLETING:
            group.unsynced.update(member.member_id for member in group.members)
        if image.state in {GroupState.PREPARING, GroupState.COMPLETING}:
            group.end_phase_at(now + group.members.rebalance_timeout())
        return group
