"""A consumer group of KIP-848 as a pure state machine: heartbeats and the passing of time in.

Any change of members, subscriptions or topics begins a new *epoch* of the group. The broker then
assigns the partitions, which gives each member a *target*; and with their heartbeats the members go
there one by one (:mod:`.member`), without waiting for each other. So there is no rebalance that all
take part in: a member that keeps what it has notices nothing.

Members of the classic protocol may be in the group as well. JoinGroup is to them what a heartbeat
with a subscription is to the others, SyncGroup tells what they have, and Heartbeat tells them to
join again when they are to have something else.

The class has no clock and does no IO: ``now`` is monotonic seconds, ``wake_at`` is when
:meth:`ConsumerGroup.tick` is due, and every request is answered at once, by one ``Respond`` effect.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from qbus.consumer_protocol import (
    CONSUMER,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.names import TopicPartition as NamedPartition

from ..group.group import GroupImage
from ..group.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Effect,
    Heartbeat,
    Join,
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
from ..group.state import GroupState
from .assignors import Partitions, TopicPartition
from .member import JOIN, LEAVE, LEAVE_STATIC, NONE, Classic, Member, MemberState
from .nodes import encode_member, group_path
from .release import Release
from .roster import Catalog, Roster
from .targets import Targets

_LEAST_INTERVAL_MS: Final = 2_000
"""How often members that wait are to ask at most: librdkafka waits no longer for an answer."""
_OFTENER: Final = 5
"""How many times as often as others they ask."""


class Settings(NamedTuple):
    """What the configuration says about a group. Times are in milliseconds.

    assignors: the names of those that members may ask for; the first is used if none does.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")


class ConsumerGroup:
    """The state machine of one group.

    wake_at: the monotonic time in seconds at which :meth:`tick` is due.
    """

    def __init__(
        self, group_id: str, catalog: Catalog, settings: Callable[[], Settings], epoch: int = 0
    ) -> None:
        self.group_id = group_id
        self.protocol_type: str | None = CONSUMER
        self.wake_at = math.inf
        self._catalog = catalog
        self._settings = settings
        self._roster = roster = Roster(group_id, catalog)
        self._targets = Targets(roster, catalog, lambda: settings().assignors, epoch)
        self._state = GroupState.EMPTY
        self._effects: list[Effect] = []

    # For reading

    @property
    def state(self) -> GroupState:
        """The state: of the members' way to their targets, not of a phase that they share."""
        return self._state

    @property
    def epoch(self) -> int:
        """Counts the changes of members, subscriptions and topics."""
        return self._targets.epoch

    @property
    def assignment_epoch(self) -> int:
        """The epoch that the members' targets were made in."""
        return self._targets.made_in

    @property
    def kind(self) -> str:
        """What kind of group it is, for the log."""
        return "a group of the consumer protocol (KIP-848): the broker assigns the partitions"

    @property
    def members(self) -> Collection[Member]:
        """The members, for reading."""
        return self._roster.members

    @property
    def is_vacant(self) -> bool:
        """Whether there are no members."""
        return not self._roster.members

    @property
    def assignor(self) -> str:
        """The name of the assignor that most members ask for."""
        return self._targets.assignor

    def takes(self, request: Request) -> bool:
        """Whether this group can handle a request: not a join of the classic protocol if empty."""
        return bool(self._roster.members) or not isinstance(request, Join)

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic."""
        return any(topic in member.subscription for member in self._roster.members)

    def admit_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Decide whether offsets may be committed; a classic member's commit extends its session.

        Any client may commit to an empty group, otherwise only members in their present epoch, or
        in the one before if they may have missed that it is over (:meth:`Member.may_use_offsets`).
        """
        if self._state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self._roster.members:
            return ErrorCode.NONE
        try:
            member = self._roster.get(member_id, instance_id)
        except ApiError as error:
            return error.code
        if member.classic is None:
            is_known = member.may_use_offsets(generation)
            return ErrorCode.NONE if is_known else ErrorCode.STALE_MEMBER_EPOCH
        if generation != member.epoch:
            return ErrorCode.ILLEGAL_GENERATION
        self._extend_session(member, now)
        return ErrorCode.NONE

    def admit_fetch(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """Decide whether the committed offsets may be read: in the epochs of commits."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self._roster.find(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_known = (
            member.may_use_offsets(epoch) if member.classic is None else epoch == member.epoch
        )
        return ErrorCode.NONE if is_known else ErrorCode.STALE_MEMBER_EPOCH

    def image(self) -> GroupImage:
        """The group's own node: of a group without classic members."""
        return GroupImage(GroupState.EMPTY, self.epoch, CONSUMER, None, None)

    def nodes(self) -> Mapping[str, bytes]:
        """Encode the group and its members; those that did not change are encoded already."""
        nodes = {group_path(): self._targets.encode()}
        for member in self._roster.members:
            if member.encoded is None:
                member.encoded = encode_member(member)
            nodes[member.path] = member.encoded
        return nodes

    # What happens

    def restore(self, assignment_epoch: int, members: Iterable[Member], now: float) -> None:
        """Take in members as they were stored; all time-outs start again.

        Where two members have a partition, only part of a change was stored. The one with the
        higher epoch got it from the other, who had given it up. Where partitions of subscribed
        topics are nobody's target, they came while no broker had the group, or again only part of
        a change was stored: then the assignment is made anew at once.
        """
        self._targets.made_in = assignment_epoch
        for member in sorted(members, key=lambda one: one.epoch):
            member.gave_up_in = member.epoch
            self._roster.restore(member)
            self._extend_session(member, now)
            self._time_release(member, now)
        if not self._targets.are_due and self._roster.leaves_partitions_out():
            self._targets.begin_epoch()
            self._wake_by(now)
        self._state = self._find_state()

    def handle(self, request: Request, now: float) -> list[Effect]:
        """Handle a request and return the effects, its response among them."""
        self._effects = []
        try:
            if self._state is GroupState.DEAD:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            result = self._answer(request, now)
        except ApiError as error:
            result = _refuse(request, error)
        self._effects.append(Respond(request, result))
        return self._finish()

    def tick(self, now: float) -> list[Effect]:
        """Handle the passing of time; return the effects. Due at ``wake_at``, harmless before."""
        self._effects = []
        if self._state is GroupState.DEAD:
            return self._effects
        late = [one for one in self._roster.members if min(one.deadline, one.release.by) <= now]
        for member in late:
            self._roster.remove(member)
        if late:
            self._targets.begin_epoch()
        self._assign(now)
        deadlines = (min(one.deadline, one.release.by) for one in self._roster.members)
        self.wake_at = min(deadlines, default=math.inf)
        if self._targets.are_due:
            self._wake_by(self._targets.due_at)
        return self._finish(f"{len(late)} members were silent for too long" if late else "")

    def topics_changed(self, names: Collection[str], now: float, /) -> list[Effect]:
        """Assign anew if members subscribe to a topic that came, went or grew.

        ``names``: of these topics; none if only what patterns match has changed.
        """
        self._effects = []
        if self._state is GroupState.DEAD:
            return self._effects
        members = self._roster.members
        former = [member.matching for member in members]
        self._roster.match_all()
        if any(
            (before is not member.matching and before != member.matching)
            or not member.subscription.isdisjoint(names)
            for member, before in zip(members, former, strict=True)
        ):
            self._targets.begin_epoch()
            self._assign(now)
        return self._finish("topics have changed")

    def dissolve(self, _error: ErrorCode) -> list[Effect]:
        """Die. No requests are parked here."""
        self._state = GroupState.DEAD
        self.wake_at = math.inf
        return []

    def turn_away(self, _error: ErrorCode) -> list[Effect]:
        """Do nothing: no requests are parked here."""
        return []

    def _answer(self, request: Request, now: float) -> Result:
        match request:
            case ConsumerHeartbeat():
                return self._heartbeat(request, now)
            case Join():
                return self._classic_join(request, now)
            case Sync():
                return self._classic_sync(request, now)
            case Heartbeat():
                return self._classic_heartbeat(request, now)
            case Leave():
                return self._classic_leave(request, now)

    # Members of KIP-848

    def _heartbeat(self, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResult:
        if request.epoch in {LEAVE, LEAVE_STATIC}:
            return self._leave(request, now)
        is_joining = request.epoch == JOIN
        member = self._join(request) if is_joining else self._known(request)
        member.hear(request.connection)
        is_late = request.epoch != member.epoch
        if self._update(member, request):
            self._targets.begin_epoch()
        self._assign(now)
        if is_joining:
            self._reconcile(member, NONE, now, is_joining=True)
            member.gave_up_in = member.epoch - 1
        else:
            self._reconcile(member, request.owned, now, is_full=request.is_full, is_late=is_late)
            member.has_missed |= is_late or request.is_full
        self._extend_session(member, now)
        # It is told until it says that it has that: it may have missed a response.
        must_tell = is_joining or is_late or request.is_full or member.revoking
        is_known = member.listed is None or member.listed == member.assigned
        if not must_tell and is_known and member.assigned == member.told:
            return self._accept(member)
        return self._accept(member, member.tell())

    def _accept(
        self, member: Member, assignment: Partitions | None = None
    ) -> ConsumerHeartbeatResult:
        return ConsumerHeartbeatResult(
            ErrorCode.NONE, None, member.member_id, member.epoch, self._interval(member), assignment
        )

    def _interval(self, member: Member) -> int:
        """Return after how many milliseconds a member is to send the next heartbeat.

        One that waits for what others are about to give up, or for its first assignment, is to ask
        oftener, for only an answer can tell it; so is one that may have missed what it was given.
        Whoever has missed an answer meanwhile has the whole interval to wait for the next ones.
        """
        interval = self._settings().heartbeat_interval_ms
        is_new = not member.target and self._targets.are_due
        if not (is_new or member.offers or member.state is MemberState.UNRELEASED):
            member.has_missed = False
            return interval
        if member.has_missed:
            return interval
        return min(interval, max(interval // _OFTENER, _LEAST_INTERVAL_MS))

    def _join(self, request: ConsumerHeartbeat) -> Member:
        """Return the member that joins: a new one, one that lost its place, or a static one.

        Raises:
            ApiError: UNRELEASED_INSTANCE_ID, another member has the instance id and did not leave;
                GROUP_MAX_SIZE_REACHED or UNSUPPORTED_ASSIGNOR;
                COORDINATOR_NOT_AVAILABLE, it was said before what the member said last.
        """
        self._check(request)
        holder = self._roster.of_instance(request.instance_id)
        member = self._roster.find(request.member_id)
        if member is not None:
            member.hear(request.connection)
        if holder is not None and holder is not member:
            if not holder.has_left and holder.classic is None:
                raise ApiError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"{holder.member_id} has the instance id {request.instance_id}",
                )
            self._make_room(member)
            return self._roster.succeed(holder, request.member_id)
        if member is not None and member.instance_id != request.instance_id:
            self._make_room(member)
            member = None
        if member is None:
            member = self._enter_new(request.member_id, request.instance_id)
        if member.classic is not None or member.has_left:
            member.classic, member.epoch = None, max(member.epoch, 0)
            self._roster.touch(member)
        return member

    def _known(self, request: ConsumerHeartbeat) -> Member:
        """Return the member that sent a heartbeat in an epoch.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, or as for joins.
        """
        member = self._roster.get(request.member_id, request.instance_id)
        self._check(request)
        if member.classic is not None or member.has_left or request.epoch > member.epoch:
            raise _fenced(member, request.epoch)
        if request.epoch < member.epoch:
            # A response was lost. Whoever has more than the member is another one.
            is_previous = request.epoch == member.previous_epoch
            if not is_previous or not (request.owned or NONE) <= member.held:
                raise _fenced(member, request.epoch)
        return member

    def _check(self, request: ConsumerHeartbeat) -> None:
        """Raise ApiError for what a member may not ask for, before anything changes."""
        if request.assignor and request.assignor not in self._settings().assignors:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"{request.assignor} is none of {', '.join(self._settings().assignors)}",
            )

    def _update(self, member: Member, request: ConsumerHeartbeat) -> bool:
        """Take in what a member tells of itself; return whether it concerns the assignment."""
        former = (member.subscription, member.assignor)
        is_joining = request.epoch == JOIN
        changes: dict[str, object] = {
            "client_id": request.client_id,
            "client_host": request.client_host,
        }
        if request.rack is not None or is_joining:
            changes["rack"] = request.rack
        if request.rebalance_timeout_ms >= 0:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.topics is not None or is_joining:
            changes["topics"] = frozenset(request.topics or ())
        if request.pattern is not None or is_joining:
            changes["pattern"] = request.pattern or ""
        if request.assignor is not None or is_joining:
            changes["assignor"] = request.assignor
        for name, value in changes.items():
            if getattr(member, name) != value:
                setattr(member, name, value)
                self._roster.touch(member)
                if name == "pattern":
                    self._roster.match(member)
        if member.sight != request.sight:
            member.sight = request.sight
            self._roster.match(member)
        return former != (member.subscription, member.assignor)

    def _leave(self, request: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResult:
        member = self._roster.get(request.member_id, request.instance_id)
        member.hear(request.connection)
        if request.epoch == LEAVE_STATIC and member.instance_id is not None:
            member.previous_epoch, member.epoch = -1, LEAVE_STATIC
            member.state, member.told = MemberState.STABLE, None
            member.offers, member.release = 0, Release()
            self._roster.set_held(member, member.assigned & member.target, NONE)
            self._extend_session(member, now)
        else:
            self._roster.remove(member)
            self._targets.begin_epoch()
            self._assign(now)
        return ConsumerHeartbeatResult(ErrorCode.NONE, None, request.member_id, request.epoch)

    # Members of the classic protocol

    def _classic_join(self, request: Join, now: float) -> JoinResult:
        """Take in a subscription and what the member has; answer with its epoch at once."""
        subscription = _subscription(request)
        holder = self._roster.of_instance(request.instance_id)
        member_id = request.member_id or request.new_member_id
        if not request.member_id and request.instance_id is None and request.needs_known_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if holder is not None and (not request.member_id or holder.has_left):
            member = self._roster.succeed(holder, member_id)
        elif self._roster.find(request.member_id) is not None or request.instance_id is not None:
            member = self._classic_member(request, member_id)
        elif request.member_id and subscription.owned:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)  # it lost its place, and does not know
        else:
            member = self._enter_new(member_id, None)
        member.classic = Classic(request.session_timeout_ms, request.protocols)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.rack = subscription.rack
        former = member.subscription
        member.topics, member.pattern, member.assignor = frozenset(subscription.topics), "", None
        member.release = Release()
        self._roster.touch(member)
        self._roster.match(member)
        if member.subscription != former:
            self._targets.begin_epoch()
        self._assign(now)
        self._reconcile(member, self._ids(subscription.owned), now, is_joining=True)
        self._extend_session(member, now)
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            member.epoch,
            CONSUMER,
            request.protocols[0].name,
        )

    def _classic_member(self, request: Join, member_id: str) -> Member:
        """Return a member that joins again, or a new static one."""
        instance_id = request.instance_id
        if instance_id is not None and self._roster.of_instance(instance_id) is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            return self._enter_new(member_id, instance_id)
        member = self._roster.get(request.member_id, instance_id)
        if member.classic is None and not member.has_left:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no classic member")
        return member

    def _enter_new(self, member_id: str, instance_id: str | None) -> Member:
        self._roster.check_room(self._settings().max_size)
        member = Member(member_id, instance_id)
        self._roster.enter(member)
        self._targets.begin_epoch()
        return member

    def _classic_sync(self, request: Sync, now: float) -> SyncResult:
        """Answer with what the member has, whatever a leader assigned."""
        member = self._classic(request.member_id, request.instance_id, request.generation)
        classic = member.classic
        assert classic is not None
        protocol = classic.protocols[0].name
        if request.protocol_type not in {None, CONSUMER} or request.protocol not in {
            None,
            protocol,
        }:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_behind = member.epoch < self.assignment_epoch
        if is_behind and member.state is not MemberState.UNREVOKED:
            self._limit_revocation(member, now)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._extend_session(member, now)
        return SyncResult(ErrorCode.NONE, CONSUMER, protocol, self.classic_assignment(member))

    def _classic_heartbeat(self, request: Heartbeat, now: float) -> ErrorCode:
        """Extend the session; tell the member to join again when there is a reason to."""
        member = self._classic(request.member_id, request.instance_id, request.generation)
        self._extend_session(member, now)
        waits_in_vain = member.state is MemberState.UNRELEASED and not all(
            self._roster.is_free(member, partition) for partition in member.target - member.assigned
        )
        is_behind = member.epoch < self.assignment_epoch
        if not is_behind and (member.state is MemberState.STABLE or waits_in_vain):
            return ErrorCode.NONE
        self._limit_revocation(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _classic_leave(self, request: Leave, now: float) -> LeaveResult:
        before = len(self._roster.members)
        outcomes = [LeaveOutcome(leaver, self._dismiss(leaver)) for leaver in request.leavers]
        if len(self._roster.members) < before:
            self._targets.begin_epoch()
            self._assign(now)
        return LeaveResult(ErrorCode.NONE, tuple(outcomes))

    def _dismiss(self, leaver: Leaver) -> ErrorCode:
        """Remove a member of whatever protocol; an administrator names only the instance."""
        holder = self._roster.of_instance(leaver.instance_id)
        try:
            if not leaver.member_id and leaver.instance_id is not None:
                if holder is None:
                    raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
                self._roster.remove(holder)
            else:
                self._roster.remove(self._roster.get(leaver.member_id, leaver.instance_id))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def _classic(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return a member of the classic protocol in its present epoch.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        member = self._roster.get(member_id, instance_id)
        if member.classic is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != member.epoch:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def classic_assignment(self, member: Member) -> bytes:
        """What a member has, as the classic protocol tells it."""
        return encode_assignment(
            NamedPartition(name, index)
            for topic_id, index in member.assigned
            if (name := self._catalog.name(topic_id)) is not None
        )

    def _ids(self, partitions: Iterable[NamedPartition]) -> Partitions:
        found = ((self._catalog.find(topic), index) for topic, index in partitions)
        return frozenset((topic[0], index) for topic, index in found if topic is not None)

    def _make_room(self, member: Member | None) -> None:
        """Remove a member whose id belongs to another one from now on."""
        if member is not None:
            self._roster.remove(member)
            self._targets.begin_epoch()

    # Assignments

    def _assign(self, now: float) -> None:
        """Make the targets of the present epoch, now or soon."""
        self._targets.make(now)
        if self._targets.are_due:
            self._wake_by(self._targets.due_at)

    def _reconcile(
        self,
        member: Member,
        owned: Partitions | None,
        now: float,
        *,
        is_joining: bool = False,
        is_full: bool = False,
        is_late: bool = False,
    ) -> None:
        before, epoch, doubts = member.held, member.epoch, member.doubts

        def is_free(partition: TopicPartition) -> bool:
            return self._roster.is_free(member, partition)

        is_patient = member.release.is_patient(member.offers, now)
        if member.reconcile(
            self.assignment_epoch,
            owned,
            is_free,
            is_joining=is_joining,
            is_full=is_full,
            is_late=is_late,
            is_patient=is_patient,
        ):
            self._roster.touch(member)
            self._roster.note_held(member, before)
        if not before <= member.held:
            member.gave_up_in = epoch
        if member.doubts and not doubts:
            member.release = Release()  # its time begins anew, once
        self._time_release(member, now)

    def _time_release(self, member: Member, now: float) -> None:
        """Limit how long a member holds what others are to have."""
        releasing = member.to_release
        member.release.note(
            releasing,
            now,
            is_told=member.state is MemberState.UNREVOKED,
            timeout_ms=member.rebalance_timeout_ms,
            heartbeat_ms=self._settings().heartbeat_interval_ms,
        )
        if not releasing:
            member.doubts = 0
        self._wake_by(member.release.by)

    def _find_state(self) -> GroupState:
        if not self._roster.members:
            return GroupState.EMPTY
        if self._targets.are_due:
            return GroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(one.has_left or one.is_reconciled(epoch) for one in self._roster.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    # Time and effects

    def _extend_session(self, member: Member, now: float) -> None:
        classic = member.classic
        timeout_ms = (
            self._settings().session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        member.deadline = now + timeout_ms / 1000
        self._wake_by(member.deadline)

    def _limit_revocation(self, member: Member, now: float) -> None:
        """Remove the member unless it does within its rebalance time-out what it is to do."""
        member.release.limit(now, member.rebalance_timeout_ms)
        self._wake_by(member.release.by)

    def _wake_by(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)

    def _finish(self, reason: str = "") -> list[Effect]:
        """Have changes stored, before the responses that tell of them."""
        if not (self._targets.has_changed or self._roster.has_changed):
            return self._effects
        self._roster.has_changed = False
        self._targets.end_event()
        before, self._state = self._state, self._find_state()
        first: list[Effect] = [Save()]
        if self._state is not before:
            reason = reason or f"epoch {self.epoch} with {len(self._roster.members)} members"
            first.append(Moved(before.value, self._state.value, reason))
        self._effects[:0] = first
        return self._effects


def _subscription(request: Join) -> Subscription:
    """Return what a member of the classic protocol subscribes to.

    Raises:
        ApiError: INCONSISTENT_GROUP_PROTOCOL, it is no consumer, or its metadata are illegible.
    """
    if request.protocol_type != CONSUMER or not request.protocols:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return decode_subscription(request.protocols[0].metadata)
    except WireError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _refuse(request: Request, error: ApiError) -> Result:
    if isinstance(request, ConsumerHeartbeat):
        return request.refuse(error.code, error.message)
    return request.refuse(error.code)


def _fenced(member: Member, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the epoch of {member.member_id} is {member.epoch}, not {epoch}: it is to join again",
    )
