"""What a group knows, and the small steps that all its rules are made of.

The rules themselves are functions over this: :mod:`.joining`, :mod:`.rebalance` and
:mod:`.membership`. Only they touch what is not marked for reading.
"""

import math
from dataclasses import dataclass

from qbus.errors import ErrorCode

from .requests import Effect, Join, Moved, Reply, Request, Result, Save, Sync
from .roster import Member, Roster
from .state import MOVES, GroupState


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the broker's configuration says of every group. Times are in seconds."""

    max_size: int = 2**31 - 1
    initial_rebalance_delay: float = 3.0
    new_member_timeout: float = 300.0


@dataclass(slots=True)
class InitialDelay:
    """The first rebalance of an empty group waits on while members keep arriving (KIP-134).

    ``remaining``: seconds by which it may still be extended; ``grew``: someone came meanwhile.
    """

    remaining: float
    grew: bool = False


class GroupCore:
    """State and primitives of a group.

    For reading: ``state``, ``generation``, ``protocol_type``, ``protocol``, ``leader``,
    ``members``, and ``wake_at``, the monotonic time in seconds at which time must be let pass.
    """

    def __init__(self, group_id: str, limits: GroupLimits | None = None) -> None:
        self.group_id = group_id
        self.limits = limits or GroupLimits()
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Roster()
        self.wake_at = math.inf
        self.pending: dict[str, float] = {}  # ids given out but not yet joined with -> deadline
        self.joining: dict[str, Join] = {}  # parked requests by member id
        self.syncing: dict[str, Sync] = {}
        self.unsynced: set[str] = set()
        self.phase_ends = math.inf  # when preparing must end; later, when all must have synced
        self.initial: InitialDelay | None = None
        self.effects: list[Effect] = []

    def check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this is a member of the current generation."""
        if error := self.members.check(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def remove(self, member_id: str) -> None:
        """Take a member off and answer what it waits for."""
        member = self.members.remove(member_id)
        self.refuse_parked(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = self.members.first()
        if not member.is_new:
            self.save()

    # Time

    def extend_session(self, member: Member, now: float) -> None:
        """Count the member's silence from now on.

        A new member cannot heartbeat, and its client's death goes unseen while its JoinGroup is
        parked: it gets a long time, but not for ever.
        """
        timeout = member.session_timeout_ms / 1000
        member.deadline = now + (self.limits.new_member_timeout if member.is_new else timeout)
        self.wake_by(member.deadline)

    def end_phase_at(self, at: float) -> None:
        """Set the time at which the current phase is over, whoever is missing."""
        self.phase_ends = at
        self.wake_by(at)

    def wake_by(self, at: float) -> None:
        """Have time let pass at ``at`` or before.

        Deadlines mostly move out: waking early now and then is cheaper than finding the earliest
        of them at every heartbeat.
        """
        self.wake_at = min(self.wake_at, at)

    def find_wake_time(self) -> None:
        """Sleep until the earliest of all deadlines."""
        sessions = (member.deadline for member in self.members)
        self.wake_at = min([self.phase_ends, *self.pending.values(), *sessions])

    # Effects

    def refuse_parked(self, member_id: str, error: ErrorCode) -> None:
        """Turn down the requests that this member waits on."""
        for parked in (self.joining.pop(member_id, None), self.syncing.pop(member_id, None)):
            if parked is not None:
                self.reply(parked, parked.refuse(error))

    def reply(self, request: Request, result: Result) -> None:
        """Answer a request; every request comes here exactly once."""
        self.effects.append(Reply(request, result))

    def save(self) -> None:
        """Have the group's image stored."""
        self.effects.append(Save())

    def move(self, state: GroupState, reason: str) -> None:
        """Enter another state."""
        assert state in MOVES[self.state], f"{self.state} -> {state}"
        self.effects.append(Moved(self.state.value, state.value, reason))
        self.state = state
