"""Drives one group: named members send requests, time passes, answers are checked."""

from collections import defaultdict
from typing import Any

from qbus.broker.group.group import Group, GroupLimits
from qbus.broker.group.requests import (
    Effect,
    GroupProtocol,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Leaver,
    Request,
    Respond,
    Result,
    Save,
    Sync,
    SyncResult,
)
from qbus.errors import ErrorCode

RANGE = (GroupProtocol("range", b"topics"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Scene:
    """A group, the current time, and all answers so far."""

    def __init__(self, **limits: Any) -> None:
        self.limits = GroupLimits(**({"initial_rebalance_delay": 3.0} | limits))
        self.group = Group("g", self.limits)
        self.now = 100.0
        self.replies: dict[Request, list[Result]] = defaultdict(list)
        self.effects: list[Effect] = []

    def take(self, effects: list[Effect]) -> None:
        self.effects = effects
        for effect in effects:
            if isinstance(effect, Respond):
                self.replies[effect.request].append(effect.result)

    def ask(self, request: Request) -> Any:
        """Send a request; return its answer, or None while it is parked."""
        self.take(self.group.handle(request, self.now))
        return self.answer(request)

    def answer(self, request: Request) -> Any:
        answers = self.replies[request]
        assert len(answers) <= 1, f"answered more than once: {answers}"
        return answers[0] if answers else None

    def pass_time(self, seconds: float) -> None:
        """Let time pass like a coordinator: tick whenever ``wake_at`` is reached."""
        end = self.now + seconds
        while self.group.wake_at <= end:
            self.now = max(self.now, self.group.wake_at)
            self.take(self.group.tick(self.now))
        self.now = end

    def restart(self) -> None:
        """Restore the group from its image."""
        self.group = Group.restore("g", self.group.image(), self.now, self.limits)

    @property
    def saved(self) -> bool:
        """Whether the last event stored the group."""
        return Save() in self.effects

    # Members

    def join(self, member_id: str, **changes: Any) -> Join:
        """Send a join; a non-empty id is that of a member that knows it."""
        request = make_join(member_id, **changes)
        self.ask(request)
        return request

    def sync(self, member_id: str, generation: int | None = None, **changes: Any) -> Sync:
        request = make_sync(
            member_id, self.group.generation if generation is None else generation, **changes
        )
        self.ask(request)
        return request

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        current = self.group.generation if generation is None else generation
        answer = self.ask(Heartbeat(member_id, instance_id, current))
        assert isinstance(answer, ErrorCode)
        return answer

    def leave(self, *member_ids: str, instance_id: str | None = None) -> list[ErrorCode]:
        leavers = tuple(Leaver(member_id, instance_id) for member_id in member_ids)
        return [outcome.error for outcome in self.ask(Leave(leavers)).outcomes]

    def commit(
        self, member_id: str = "", generation: int = -1, instance_id: str | None = None
    ) -> ErrorCode:
        return self.group.admit_commit(member_id, instance_id, generation, self.now)

    def joined(self, request: Join) -> JoinResult:
        """Return the answer of a join that succeeded."""
        result = self.answer(request)
        assert isinstance(result, JoinResult), "still parked"
        assert result.error is ErrorCode.NONE
        return result

    def synced(self, request: Sync) -> SyncResult:
        result = self.answer(request)
        assert isinstance(result, SyncResult), "still parked"
        assert result.error is ErrorCode.NONE
        return result

    # Whole stories

    def settle(self, *member_ids: str, **changes: Any) -> None:
        """Bring these members (``a``, or a static one as ``a@instance``) to a stable group."""
        joins = [self.join("", **named(name), **changes) for name in member_ids]
        self.pass_time(2 * self.limits.initial_rebalance_delay)
        leader = self.joined(joins[0]).leader
        self.assign(leader)

    def assign(self, leader: str) -> None:
        """Have the leader give every member its own name, and every member fetch it."""
        members = [member.member_id for member in self.group.members]
        given = {member_id: member_id.encode() for member_id in members}
        syncs = [
            self.sync(member_id, assignments=given if member_id == leader else {})
            for member_id in members
        ]
        for member_id, request in zip(members, syncs, strict=True):
            assert self.synced(request).assignment == member_id.encode()


def named(name: str) -> dict[str, Any]:
    member_id, _, instance_id = name.partition("@")
    return {"new_member_id": member_id, "instance_id": instance_id or None, "needs_known_id": False}


def make_join(member_id: str, **changes: Any) -> Join:
    fields: dict[str, Any] = {
        "member_id": member_id,
        "new_member_id": "new",
        "instance_id": None,
        "client_id": "client",
        "client_host": "10.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    return Join(**(fields | changes))


def make_sync(member_id: str, generation: int, **changes: Any) -> Sync:
    fields: dict[str, Any] = {
        "member_id": member_id,
        "instance_id": None,
        "generation": generation,
        "protocol_type": "consumer",
        "protocol": "range",
        "assignments": {},
    }
    return Sync(**(fields | changes))
