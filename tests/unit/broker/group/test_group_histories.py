"""Random histories of one group: whatever members, time and restarts do, these hold.

- Every request is answered exactly once, at the latest when the group is dissolved.
- A generation has one leader, and every assignment of it is what that leader handed in.
- Generations only grow; a member of an older one can never commit, sync or heartbeat.
- An answer that tells of a generation or an assignment comes with the group being stored, or was
  true before.
- A restart leaves the group as it was.
- The group never sleeps through a deadline, and never forgets an established member silently.
"""

import math
from collections import defaultdict

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qbus.broker.group.group import Group, GroupLimits
from qbus.broker.group.requests import (
    Effect,
    GroupProtocol,
    Heartbeat,
    JoinResult,
    Leave,
    Leaver,
    Request,
    Respond,
    Save,
    Sync,
    SyncResult,
)
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode

from .scene import make_join, make_sync

LIMITS = GroupLimits(max_size=4, initial_rebalance_delay=3.0, new_member_timeout=50.0)
PROTOCOLS = st.sampled_from(
    [
        (GroupProtocol("range", b"1"),),
        (GroupProtocol("range", b"2"),),
        (GroupProtocol("range", b"1"), GroupProtocol("sticky", b"1")),
        (GroupProtocol("sticky", b"1"), GroupProtocol("range", b"1")),
    ]
)


class Client:
    """What one consumer believes."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.waits_for: Request | None = None


class GroupHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = Group("g", LIMITS)
        self.now = 0.0
        self.ids = 0
        self.clients = [Client(None), Client(None), Client(None), Client("one"), Client("two")]
        self.owner: dict[Request, Client] = {}
        self.open: set[Request] = set()
        self.leader_of: dict[int, set[str]] = defaultdict(set)
        self.handed_in: dict[int, dict[str, bytes]] = {}
        self.stored = self.group.image()
        self.newest = 0

    # What clients do

    @rule(who=st.integers(0, 4), protocols=PROTOCOLS, known=st.booleans(), skip=st.booleans())
    def join(self, who: int, protocols: tuple[GroupProtocol, ...], known: bool, skip: bool) -> None:
        client = self.clients[who]
        self.ids += 1
        request = make_join(
            client.member_id,
            new_member_id=f"m{self.ids}",
            instance_id=client.instance_id,
            protocols=protocols,
            session_timeout_ms=10_000 + 1_000 * who,
            rebalance_timeout_ms=20_000,
            needs_known_id=known,
            knows_skip_assignment=skip,
        )
        self.ask(client, request)

    @rule(who=st.integers(0, 4), protocols=PROTOCOLS)
    def start_again(self, who: int, protocols: tuple[GroupProtocol, ...]) -> None:
        """The process died: the client knows nothing, the group still parks what it asked."""
        self.clients[who].member_id = ""
        self.clients[who].generation = -1
        self.clients[who].waits_for = None
        self.join(who, protocols, known=True, skip=True)

    @rule(who=st.integers(0, 4), subset=st.integers(0, 255))
    def sync(self, who: int, subset: int) -> None:
        client = self.clients[who]
        assignments = {}
        if client.is_leader:
            for index, member in enumerate(self.group.members):
                if subset >> index & 1:
                    name = f"{client.generation}:{client.member_id}->{member.member_id}:{subset}"
                    assignments[member.member_id] = name.encode()
        request = make_sync(
            client.member_id,
            client.generation,
            instance_id=client.instance_id,
            protocol=None,
            assignments=assignments,
        )
        self.ask(client, request)

    @rule(protocols=PROTOCOLS, first=st.integers(0, 4), count=st.integers(1, 4))
    def settle(self, protocols: tuple[GroupProtocol, ...], first: int, count: int) -> None:
        """Some behave for a while: what follows then happens to a group that may be stable."""
        members = [(first + i) % 5 for i in range(count)]
        for _ in range(2):
            for who in members:
                self.join(who, protocols, known=True, skip=True)
        self.pass_time(11.0)
        for who in members:
            self.sync(who, 255)

    @rule(who=st.integers(0, 4))
    def heartbeat(self, who: int) -> None:
        client = self.clients[who]
        self.ask(client, Heartbeat(client.member_id, client.instance_id, client.generation))

    @rule(who=st.integers(0, 4), age=st.integers(1, 3))
    def use_an_old_generation(self, who: int, age: int) -> None:
        client = self.clients[who]
        old = self.group.generation - age
        error = self.group.admit_commit(client.member_id, client.instance_id, old, self.now)
        assert error or (old < 0 and self.group.state is GroupState.EMPTY)

    @rule(who=st.integers(0, 4), extra=st.integers(0, 4))
    def leave(self, who: int, extra: int) -> None:
        clients = [self.clients[who], self.clients[extra]]
        leavers = tuple(Leaver(client.member_id, client.instance_id) for client in clients)
        self.ask(clients[0], Leave(leavers))

    # What time and crashes do

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 3.0, 9.0, 11.0, 21.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(10_000):
            if self.group.wake_at > end:
                break
            self.now = max(self.now, self.group.wake_at)
            self.take(self.group.tick(self.now))
        else:
            raise AssertionError("it never sleeps")
        self.now = end

    @rule()
    def tick_early(self) -> None:
        self.take(self.group.tick(self.now))

    @rule()
    def restart(self) -> None:
        """Only what was stored survives; all connections break."""
        for request in self.open:
            self.owner[request].waits_for = None
        self.open.clear()
        self.group = Group.restore("g", self.stored, self.now, LIMITS)
        assert self.group.image() == self.stored

    @precondition(lambda self: self.group.members)
    @rule()
    def dissolve_and_reload(self) -> None:
        self.take(self.group.dissolve(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert not self.open, "somebody was left waiting"
        self.restart()

    # What must hold

    def ask(self, client: Client, request: Request) -> None:
        self.owner[request] = client
        self.open.add(request)
        client.waits_for = request
        before = self.group.image()
        effects = self.group.handle(request, self.now)
        if isinstance(request, Sync) and before.state is not self.group.state is GroupState.STABLE:
            assert request.member_id in self.leader_of[self.group.generation]
            self.handed_in[self.group.generation] = request.assignments
        self.take(effects)

    def take(self, effects: list[Effect]) -> None:
        if Save() in effects:
            self.stored = self.group.image()
        for effect in effects:
            if isinstance(effect, Respond):
                self.answered(effect)

    def answered(self, reply: Respond) -> None:
        assert reply.request in self.open, "answered twice"
        self.open.remove(reply.request)
        client = self.owner[reply.request]
        current = client.waits_for is reply.request
        match reply.result:
            case JoinResult(error=ErrorCode.NONE) as result:
                self.told_of_a_generation(result)
                if current:
                    client.member_id, client.generation = result.member_id, result.generation
                    client.is_leader = result.leader == result.member_id
            case JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id):
                client.member_id = member_id if current else client.member_id
            case JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID):
                client.member_id = "" if current else client.member_id
            case SyncResult(error=ErrorCode.NONE) as result:
                self.got_an_assignment(reply.request, result)
            case _:
                pass

    def told_of_a_generation(self, result: JoinResult) -> None:
        assert result.generation == self.group.generation == self.stored.generation
        assert result.generation >= self.newest
        self.newest = result.generation
        if result.leader == result.member_id and not result.skip_assignment:
            self.leader_of[result.generation].add(result.member_id)
            assert len(self.leader_of[result.generation]) == 1, "two leaders assign"
        told = {member.member_id for member in result.members}
        assert not told or told == {member.member_id for member in self.group.members}

    def got_an_assignment(self, request: Request, result: SyncResult) -> None:
        assert isinstance(request, Sync)
        assert request.generation == self.group.generation
        generation, rest = (result.assignment or b"%d:" % request.generation).split(b":", 1)
        assert int(generation) == request.generation
        assert not rest or rest in {
            value.split(b":", 1)[1] for value in self.handed_in[request.generation].values()
        }
        assert self.group.state is GroupState.STABLE
        assert self.stored == self.group.image(), "an assignment was told before it was stored"

    @invariant()
    def deadlines_are_watched(self) -> None:
        deadlines = [member.deadline for member in self.group.members]
        assert self.group.wake_at <= min(
            [*deadlines, *self.group.pending.values()], default=math.inf
        )

    @invariant()
    def only_waiting_requests_are_parked(self) -> None:
        assert {*self.group.joining.values(), *self.group.syncing.values()} == self.open
        assert set(self.group.joining) | set(self.group.syncing) <= {
            member.member_id for member in self.group.members
        }

    @invariant()
    def established_members_are_stored(self) -> None:
        live, stored = self.group.image(), self.stored
        assert live.generation == stored.generation
        assert [member.member_id for member in live.members] == [
            member.member_id for member in stored.members
        ]

    @invariant()
    def state_and_members_agree(self) -> None:
        group = self.group
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in {GroupState.COMPLETING, GroupState.STABLE}:
            assert (group.leader or "") in group.members
            assert not group.joining
            assert group.members.supports((GroupProtocol(group.protocol or "", b""),))
        if group.state is not GroupState.COMPLETING:
            assert not group.syncing


TestGroupHistories = GroupHistories.TestCase
TestGroupHistories.settings = settings(max_examples=100, stateful_step_count=50)
