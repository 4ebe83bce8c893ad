"""One consumer group as a pure state machine: requests and the passing of time in, effects out.

The rules are those of Kafka's classic group protocol as its coordinator applies them: KIP-62
(session and rebalance time-outs), KIP-134 (delayed initial rebalance), KIP-345 (static members),
KIP-394 (known member ids), KIP-559 (protocol checks), KIP-814 (static leaders that come back).

A rebalance has two halves. *Preparing* parks every JoinGroup until all known members have joined,
or the longest rebalance time-out has passed; members that are missing then are removed.
*Completing* starts with a new generation: all members are told of it, and SyncGroup requests are
parked until the leader's brings the assignment, which makes the group *Stable*. A member that has
not synced within its rebalance time-out is removed, and the group prepares again.

The class has no clock and does no IO: ``now`` is monotonic seconds, ``wake_at`` is when
:meth:`Group.tick` is due, and every request is answered by exactly one ``Respond`` effect.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from qbus.consumer_protocol import CONSUMER, decode_topics
from qbus.errors import ErrorCode, WireError

from .members import Member, MemberImage, Members
from .requests import (
    ConsumerHeartbeat,
    Effect,
    Heartbeat,
    Join,
    JoinedMember,
    JoinResult,
    Leave,
    LeaveOutcome,
    Leaver,
    LeaveResult,
    Moved,
    Request,
    Respond,
    Result,
    Save,
    Sync,
    SyncResult,
)
from .state import MOVES, GroupState

_RETRY_SECONDS: Final = 1.0  # minimal interval of rebalances that no member joins

# A member heartbeats as soon as it knows its generation, even while others still sync.
_HEARTBEAT_ANSWERS: Final = {
    GroupState.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}
# While preparing, members still commit for the old generation. While completing, they know the new
# generation but not yet their assignment.
_COMMIT_ANSWERS: Final = {
    GroupState.PREPARING: ErrorCode.NONE,
    GroupState.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.STABLE: ErrorCode.NONE,
}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits for every group, from the broker's configuration. Times are in seconds."""

    max_size: int = 2**31 - 1
    initial_rebalance_delay: float = 3.0
    new_member_timeout: float = 300.0


@dataclass(slots=True)
class InitialDelay:
    """The first rebalance of an empty group is delayed while members arrive (KIP-134).

    ``remaining``: seconds by which it may still be extended; ``grew``: a member arrived meanwhile.
    """

    remaining: float
    grew: bool = False


class GroupImage(NamedTuple):
    """The durable part of a group: a snapshot to store and to restore from.

    It has the established members only; without any, the state is Empty.
    """

    state: GroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberImage, ...] = ()


EMPTY_IMAGE = GroupImage(GroupState.EMPTY, 0, None, None, None)


class Group:
    """The state machine of one group.

    For reading: ``state``, ``generation``, ``protocol_type``, ``protocol``, ``leader``,
    ``members``, and ``wake_at``, the monotonic time in seconds at which :meth:`tick` is due.
    ``pending`` has the deadlines of member ids that were given out and not used yet; ``joining``
    and ``syncing`` have the parked requests by member id.
    """

    def __init__(self, group_id: str, limits: GroupLimits | None = None) -> None:
        self.group_id = group_id
        self._limits = limits or GroupLimits()
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.wake_at = math.inf
        self.pending: dict[str, float] = {}  # ids given out but not yet joined with -> deadline
        self.joining: dict[str, Join] = {}  # parked requests by member id
        self.syncing: dict[str, Sync] = {}
        self._unsynced: set[str] = set()
        self._phase_ends = math.inf  # when preparing must end; later, when all must have synced
        self._initial: InitialDelay | None = None
        self._effects: list[Effect] = []

    def handle(self, request: Request, now: float) -> list[Effect]:
        """Handle a request and return the effects; its response may come with a later event."""
        self._effects = []
        match request:
            case Join():
                self._join(request, now)
            case Sync():
                self._sync(request, now)
            case Heartbeat():
                self._heartbeat(request, now)
            case Leave():
                self._leave(request, now)
            case ConsumerHeartbeat():
                self._reply(request, request.refuse(ErrorCode.UNKNOWN_MEMBER_ID))
        return self._effects

    @property
    def kind(self) -> str:
        """What kind of group it is, for the log."""
        return "a classic group: its members assign the partitions"

    def takes(self, request: Request) -> bool:
        """Whether the request belongs to the classic protocol."""
        return not isinstance(request, ConsumerHeartbeat)

    def tick(self, now: float) -> list[Effect]:
        """Handle the passing of time; return the effects. Due at ``wake_at``, harmless before."""
        self._effects = []
        if self.state is GroupState.DEAD:
            return self._effects
        self._expire_sessions(now)
        if self._phase_ends <= now:
            self._end_phase(now)
        self._find_wake_time()
        return self._effects

    def admit_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Decide whether offsets may be committed; a member's commit also extends its session.

        Any client may commit to an empty group, otherwise only members of the generation.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if error := self._check(member_id, instance_id, generation):
            return error
        self._extend_session(self.members[member_id], now)
        return _COMMIT_ANSWERS[self.state]

    def admit_fetch(self, _member_id: str | None, _epoch: int, /) -> ErrorCode:
        """Admit everybody: the classic protocol has no member that reads offsets as such."""
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        """Whether a group of consumers may read this topic; an illegible subscription may."""
        if self.protocol_type != CONSUMER:
            return False
        try:
            return any(
                topic in decode_topics(member.metadata(self.protocol)) for member in self.members
            )
        except WireError:
            return True

    def topics_changed(self, _names: Collection[str], _now: float, /) -> list[Effect]:
        """Leave it to the members, which watch the topics themselves."""
        return []

    def dissolve(self, error: ErrorCode) -> list[Effect]:
        """Refuse everything parked and die: the group is deleted or unloaded."""
        self.turn_away(error)
        self._move(GroupState.DEAD, f"dissolved with {error.name}")
        self._phase_ends = self.wake_at = math.inf
        return self._effects

    def turn_away(self, error: ErrorCode) -> list[Effect]:
        """Refuse everything parked; the members stay."""
        self._effects = []
        for member_id in [*self.joining, *self.syncing]:
            self._refuse_parked(member_id, error)
        return self._effects

    @property
    def is_vacant(self) -> bool:
        """Whether there are no members and no ids given to future members."""
        return not self.members and not self.pending

    def image(self) -> GroupImage:
        """Take a snapshot of what must survive a failover."""
        members = tuple(MemberImage.of(member) for member in self.members if not member.is_new)
        if not members:
            return GroupImage(GroupState.EMPTY, self.generation, self.protocol_type, None, None)
        established = [member.member_id for member in members]
        leader = self.leader if self.leader in established else established[0]
        return GroupImage(
            self.state, self.generation, self.protocol_type, self.protocol, leader, members
        )

    def nodes(self) -> Mapping[str, bytes]:
        """Return nothing: the image is all that is stored."""
        return {}

    @classmethod
    def restore(
        cls, group_id: str, image: GroupImage, now: float, limits: GroupLimits | None = None
    ) -> Self:
        """Restore a group from its image; all time-outs start again."""
        group = cls(group_id, limits)
        group.state = image.state
        group.generation = image.generation
        group.protocol_type, group.protocol = image.protocol_type, image.protocol
        group.leader = image.leader
        for member_image in image.members:
            member = member_image.restore()
            group.members.add(member)
            group._extend_session(member, now)
        if image.state is GroupState.COMPLETING:
            group._unsynced.update(member.member_id for member in group.members)
        if image.state in {GroupState.PREPARING, GroupState.COMPLETING}:
            group._end_phase_at(now + group.members.rebalance_timeout())
        return group

    # JoinGroup

    def _join(self, request: Join, now: float) -> None:
        """Answer or park a JoinGroup request."""
        if self.state is GroupState.DEAD:
            self._reply(request, request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif not self._has_room_for(request.member_id):
            self._refuse_full(request, now)
        elif not self._supports(request):
            self._reply(request, request.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.member_id:
            self._join_unknown(request, now)
        elif request.member_id in self.pending and request.instance_id is None:
            self._add(request.member_id, request, now)
        else:
            self._rejoin(request, now)

    def _has_room_for(self, member_id: str) -> bool:
        """Whether the group has room for this member.

        While preparing, only members that have rejoined count: after the limit was lowered, the
        last to rejoin are refused.
        """
        limit = self._limits.max_size
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING:
            return member_id in self.joining or len(self.joining) < limit
        return member_id in self.members or len(self.members) < limit

    def _refuse_full(self, request: Join, now: float) -> None:
        self.pending.pop(request.member_id, None)
        if request.member_id in self.members:
            self._remove(request.member_id)
        self._reply(request, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        self._complete_if_all_in(now)

    def _supports(self, request: Join) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        same_type = request.protocol_type == self.protocol_type
        return same_type and self.members.supports(request.protocols)

    def _join_unknown(self, request: Join, now: float) -> None:
        """Handle a client without a member id: a new one, or a restarted static member."""
        member_id = request.new_member_id
        holder = self.members.instance(request.instance_id)
        if holder is not None:
            self._replace(holder, request, now)
        elif request.instance_id is None and request.needs_known_id:
            self.pending[member_id] = now + request.session_timeout_ms / 1000
            self._wake_by(self.pending[member_id])
            self._reply(request, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, request, now)

    def _add(self, member_id: str, request: Join, now: float) -> None:
        self.pending.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
            self.leader = member_id
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
        )
        self.members.add(member)
        self._extend_session(member, now)
        self.joining[member_id] = request
        if self._initial:
            self._initial.grew = True
        self._prepare_rebalance(f"{member_id} joins: {request.reason or 'no reason given'}", now)

    def _rejoin(self, request: Join, now: float) -> None:
        if error := self.members.check(request.member_id, request.instance_id):
            self._reply(request, request.refuse(error))
            return
        member = self.members[request.member_id]
        if self._is_up_to_date(member, request):
            self._extend_session(member, now)
            self._reply(request, self._joined(member))
            return
        self._update(member, request)
        self._prepare_rebalance(
            f"{member.member_id} rejoins: {request.reason or 'no reason given'}", now
        )

    def _is_up_to_date(self, member: Member, request: Join) -> bool:
        """Whether the member only missed the response about the current generation.

        A leader may see changes that no member's metadata shows, such as new partitions: when it
        rejoins a stable group it wants a rebalance.
        """
        if member.protocols != request.protocols:
            return False
        if self.state is GroupState.STABLE:
            return member.member_id != self.leader
        return self.state is GroupState.COMPLETING

    def _update(self, member: Member, request: Join) -> None:
        self.members.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._refuse_parked(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.joining[member.member_id] = request

    def _replace(self, old: Member, request: Join, now: float) -> None:
        """Give a static member's place to its next incarnation, and fence the old one."""
        old_leader = self.leader
        self._refuse_parked(old.member_id, ErrorCode.FENCED_INSTANCE_ID)
        self._unsynced.discard(old.member_id)
        member = self.members.rename(old.member_id, request.new_member_id)
        if self.leader == old.member_id:
            self.leader = member.member_id
        member.client_id, member.client_host = request.client_id, request.client_host
        self._update(member, request)
        self._extend_session(member, now)
        self._save()
        if self.state is GroupState.STABLE and self.members.vote() == self.protocol:
            del self.joining[member.member_id]
            self._reply(request, self._resumed(member, request, old_leader))
        else:
            # While completing, the leader may already be assigning to the old id.
            self._prepare_rebalance(f"{member.instance_id} is now {member.member_id}", now)

    def _resumed(self, member: Member, request: Join, old_leader: str | None) -> JoinResult:
        """Answer a static member that returns to a stable group: continue without an assignment."""
        if request.knows_skip_assignment:
            return self._joined(member, skip_assignment=member.member_id == self.leader)
        # An older client that is named leader here would compute an assignment.
        return self._joined(member, leader=old_leader, members=())

    # The rebalance

    def _prepare_rebalance(self, reason: str, now: float) -> None:
        """Begin a rebalance; if one is being prepared, check whether all members have joined."""
        if self.state is GroupState.PREPARING:
            self._complete_if_all_in(now)
            return
        for member_id in list(self.syncing):
            self._refuse_parked(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._extend_session(self.members[member_id], now)
        self._unsynced.clear()
        was_empty = self.state is GroupState.EMPTY
        self._move(GroupState.PREPARING, reason)
        if was_empty:
            delay = self._limits.initial_rebalance_delay
            self._initial = InitialDelay(max(self.members.rebalance_timeout() - delay, 0.0))
            self._end_phase_at(now + delay)
        else:
            self._save()
            self._end_phase_at(now + self.members.rebalance_timeout())
            self._complete_if_all_in(now)

    def _complete_if_all_in(self, now: float) -> None:
        """Complete the preparation early when all members have joined."""
        all_in = len(self.joining) == len(self.members) and not self.pending
        if self.state is GroupState.PREPARING and not self._initial and all_in:
            self._complete_preparing(now)

    def _complete_preparing(self, now: float) -> None:
        """Continue with the members that joined; static members stay without rejoining."""
        self._initial = None
        for member in list(self.members):
            if member.member_id not in self.joining and member.instance_id is None:
                self._remove(member.member_id)
        if not self.members:
            self._become_empty()
        elif not self.joining:
            self._end_phase_at(now + max(self.members.rebalance_timeout(), _RETRY_SECONDS))
        else:
            if self.leader not in self.joining:
                self.leader = next(iter(self.joining))
            self._start_generation(now)

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = self.leader = None
        self._phase_ends = math.inf
        self._move(GroupState.EMPTY, "no members left")
        self._save()

    def _start_generation(self, now: float) -> None:
        self.generation += 1
        self.protocol = self.members.vote()
        self._move(
            GroupState.COMPLETING, f"generation {self.generation} with {len(self.members)} members"
        )
        for member in self.members:
            member.is_new = False
            self._extend_session(member, now)
            self._unsynced.add(member.member_id)
        joining, self.joining = self.joining, {}
        for member_id, request in joining.items():
            self._reply(request, self._joined(self.members[member_id]))
        self._end_phase_at(now + self.members.rebalance_timeout())
        self._save()

    def _joined(
        self,
        member: Member,
        *,
        leader: str | None = None,
        members: tuple[JoinedMember, ...] | None = None,
        skip_assignment: bool = False,
    ) -> JoinResult:
        """Describe the current generation to a member; the leader also gets all members."""
        if members is None:
            members = self._joined_members() if member.member_id == self.leader else ()
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or self.leader or "",
            members,
            skip_assignment,
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members
        )

    def _end_phase(self, now: float) -> None:
        """End the current phase without the members that are missing."""
        self._phase_ends = math.inf
        initial = self._initial
        if self.state is GroupState.PREPARING:
            if initial and initial.grew and initial.remaining > 0:
                self._extend_initial_delay(initial, now)
            else:
                self._complete_preparing(now)
        elif self._unsynced:
            laggards = sorted(self._unsynced)
            for member_id in laggards:
                self._remove(member_id)
            self._prepare_rebalance(f"did not sync in time: {', '.join(laggards)}", now)

    def _extend_initial_delay(self, initial: InitialDelay, now: float) -> None:
        delay = min(self._limits.initial_rebalance_delay, initial.remaining)
        initial.grew = False
        initial.remaining -= delay
        self._end_phase_at(now + delay)

    def _expire_sessions(self, now: float) -> None:
        """Remove members whose sessions have expired."""
        for member_id in [key for key, deadline in self.pending.items() if deadline <= now]:
            del self.pending[member_id]
        gone = []
        for member in [member for member in self.members if member.deadline <= now]:
            parked = member.member_id in self.joining or member.member_id in self.syncing
            if parked and not member.is_new:
                member.deadline = math.inf  # a client with a parked request does not heartbeat
            else:
                self._remove(member.member_id)
                gone.append(member.member_id)
        if gone:
            self._prepare_rebalance(f"session timed out: {', '.join(gone)}", now)
        self._complete_if_all_in(now)

    # Members of a generation

    def _heartbeat(self, request: Heartbeat, now: float) -> None:
        """Extend a session, and tell the member of a rebalance."""
        if self.state is GroupState.DEAD:
            answer = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            answer = self._check(request.member_id, request.instance_id, request.generation)
        if not answer:
            self._extend_session(self.members[request.member_id], now)
            answer = _HEARTBEAT_ANSWERS[self.state]
        self._reply(request, answer)

    def _sync(self, request: Sync, now: float) -> None:
        """Answer with the member's assignment, or park the request until the leader brings it."""
        if error := self._sync_error(request):
            self._reply(request, request.refuse(error))
            return
        member = self.members[request.member_id]
        self._extend_session(member, now)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._phase_ends = math.inf
        if self.state is GroupState.STABLE:
            self._reply(request, self._synced(member))
            return
        self._refuse_parked(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.syncing[member.member_id] = request
        if member.member_id == self.leader:
            self._assign(request.assignments, now)

    def _sync_error(self, request: Sync) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self._check(request.member_id, request.instance_id, request.generation):
            return error
        if _differ(request.protocol_type, self.protocol_type) or _differ(
            request.protocol, self.protocol
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, assignments: dict[str, bytes], now: float) -> None:
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self._move(GroupState.STABLE, f"{self.leader} assigned generation {self.generation}")
        self._save()
        syncing, self.syncing = self.syncing, {}
        for member_id, request in syncing.items():
            member = self.members[member_id]
            self._extend_session(member, now)
            self._reply(request, self._synced(member))

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def _leave(self, request: Leave, now: float) -> None:
        """Remove members, each with its own result, and rebalance once for all of them."""
        if self.state is GroupState.DEAD:
            self._reply(request, request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(self.members)
        outcomes = tuple(LeaveOutcome(leaver, self._dismiss(leaver)) for leaver in request.leavers)
        self._reply(request, LeaveResult(ErrorCode.NONE, outcomes))
        if self.state is GroupState.PREPARING or len(self.members) < before:
            gone = [
                f"{leaver.member_id or leaver.instance_id} ({leaver.reason or 'no reason given'})"
                for leaver, error in outcomes
                if not error
            ]
            self._prepare_rebalance(f"left: {', '.join(gone)}", now)

    def _dismiss(self, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:  # an administrator names only the instance
            holder = self.members.instance(leaver.instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder.member_id
        elif self.pending.pop(member_id, None) is not None:
            return ErrorCode.NONE
        elif error := self.members.check(member_id, leaver.instance_id):
            return error
        self._remove(member_id)
        return ErrorCode.NONE

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Check that this is a member of the current generation."""
        if error := self.members.check(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _remove(self, member_id: str) -> None:
        """Remove a member and refuse its parked requests."""
        member = self.members.remove(member_id)
        self._refuse_parked(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = self.members.first()
        if not member.is_new:
            self._save()

    # Time

    def _extend_session(self, member: Member, now: float) -> None:
        """Restart the member's session time-out.

        A new member cannot heartbeat while its JoinGroup is parked, so it gets a long time-out.
        """
        timeout = member.session_timeout_ms / 1000
        member.deadline = now + (self._limits.new_member_timeout if member.is_new else timeout)
        self._wake_by(member.deadline)

    def _end_phase_at(self, at: float) -> None:
        """Set the time at which the current phase ends, even with members missing."""
        self._phase_ends = at
        self._wake_by(at)

    def _wake_by(self, at: float) -> None:
        """Make ``wake_at`` no later than ``at``.

        Deadlines mostly move out, and an early wake-up now and then is cheaper than finding the
        earliest deadline at every heartbeat.
        """
        self.wake_at = min(self.wake_at, at)

    def _find_wake_time(self) -> None:
        """Set ``wake_at`` to the earliest of all deadlines."""
        sessions = (member.deadline for member in self.members)
        self.wake_at = min([self._phase_ends, *self.pending.values(), *sessions])

    # Effects

    def _refuse_parked(self, member_id: str, error: ErrorCode) -> None:
        """Refuse the parked requests of this member."""
        for parked in (self.joining.pop(member_id, None), self.syncing.pop(member_id, None)):
            if parked is not None:
                self._reply(parked, parked.refuse(error))

    def _reply(self, request: Request, result: Result) -> None:
        """Answer a request; this happens exactly once for every request."""
        self._effects.append(Respond(request, result))

    def _save(self) -> None:
        """Have the group's image stored."""
        self._effects.append(Save())

    def _move(self, state: GroupState, reason: str) -> None:
        """Enter another state."""
        assert state in MOVES[self.state], f"{self.state} -> {state}"
        self._effects.append(Moved(self.state.value, state.value, reason))
        self.state = state


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
