"""A group coordinator as a model: what a broker promises its members, in memory and on the loop.

It knows sessions, generations and static members, and checks what it is told: an offset that goes
back, or an assignment that gives a partition to two, is an error of the members.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from qbus.clients.types import TopicPartition
from qbus.consumer_protocol import decode_assignment
from qbus.errors import ErrorCode
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from qbus.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from qbus.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from qbus.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

JOIN_DELAY = 0.5


class _Member:
    def __init__(self, request: JoinGroupRequest) -> None:
        self.request = request
        self.joining: asyncio.Future[JoinGroupResponse] | None = None
        self.expiry: asyncio.TimerHandle | None = None


class Coordinator:
    """One group. ``wrong`` is what members did that they may not do."""

    def __init__(self) -> None:
        self.generation = 0
        self.protocol = ""
        self.members: dict[str, _Member] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.wrong: list[str] = []
        self.refused: Counter[str] = Counter()
        self._ids = 0
        self._pending: set[str] = set()
        self._static: dict[str, str] = {}
        self._is_rebalancing = False
        self._deadline: asyncio.TimerHandle | None = None
        self._assigned: asyncio.Future[dict[str, bytes]] | None = None

    async def answer(self, request: Any) -> Any:
        handlers: dict[type, Callable[[Any], Any]] = {
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: self.heartbeat,
            LeaveGroupRequest: self.leave,
            OffsetCommitRequest: self.commit,
        }
        found = handlers[type(request)](request)
        return await found if asyncio.iscoroutine(found) else found

    def holds(self, member_id: str, generation: int) -> bool:
        """Whether this member has a place now."""
        return member_id in self.members and generation == self.generation

    # Joining.

    async def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        member_id, instance = request.member_id, request.group_instance_id
        if not member_id and instance is None:
            member_id = self._new_id()
            self._pending.add(member_id)
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        if instance is not None:
            if member_id and self._static.get(instance) != member_id:
                return JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
            if not member_id:
                member_id = self._new_id()
                self._replace_static(instance, member_id)
        elif member_id not in self.members and member_id not in self._pending:
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self._pending.discard(member_id)
        member = self.members.setdefault(member_id, _Member(request))
        member.request = request
        if member.expiry is not None:
            member.expiry.cancel()
        if not self._is_rebalancing:
            self._begin()
        if member.joining is None:
            member.joining = asyncio.get_running_loop().create_future()
        mine = member.joining
        if len(self.members) > 1 and all(one.joining for one in self.members.values()):
            self._complete()
        return await asyncio.shield(mine)

    def _new_id(self) -> str:
        self._ids += 1
        return f"m{self._ids:03}"

    def _replace_static(self, instance: str, member_id: str) -> None:
        old = self._static.get(instance)
        self._static[instance] = member_id
        if old in self.members:
            self._drop(old, ErrorCode.FENCED_INSTANCE_ID)

    def _begin(self) -> None:
        self._is_rebalancing = True
        if self._assigned is not None and not self._assigned.done():
            self._assigned.cancel()
        patience = max(
            (one.request.rebalance_timeout_ms / 1000 for one in self.members.values()), default=1.0
        )
        delay = JOIN_DELAY if len(self.members) == 1 else patience
        self._deadline = asyncio.get_running_loop().call_later(delay, self._complete)

    def _complete(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for member_id in [one for one, member in self.members.items() if member.joining is None]:
            self._drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._is_rebalancing = False
        if not self.members:
            return
        self.generation += 1
        self._assigned = asyncio.get_running_loop().create_future()
        self.protocol = self._choose()
        leader = min(self.members)
        told = [
            JoinGroupResponseMember(
                member_id=member_id,
                group_instance_id=member.request.group_instance_id,
                metadata=self._said(member.request),
            )
            for member_id, member in self.members.items()
        ]
        for member_id, member in self.members.items():
            assert member.joining is not None
            member.joining.set_result(
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name=self.protocol,
                    leader=leader,
                    member_id=member_id,
                    members=told if member_id == leader else [],
                )
            )
            member.joining = None
            self._lives(member_id)

    def _choose(self) -> str:
        names = [[p.name for p in one.request.protocols] for one in self.members.values()]
        common = set(names[0]).intersection(*names)
        votes = Counter(next(name for name in theirs if name in common) for theirs in names)
        return max(sorted(common), key=lambda name: votes[name])

    def _said(self, request: JoinGroupRequest) -> bytes:
        return next(p.metadata for p in request.protocols if p.name == self.protocol)

    def _lives(self, member_id: str) -> None:
        member = self.members[member_id]
        if member.expiry is not None:
            member.expiry.cancel()
        member.expiry = asyncio.get_running_loop().call_later(
            member.request.session_timeout_ms / 1000, self._expire, member_id
        )

    def _expire(self, member_id: str) -> None:
        if member_id in self.members and self.members[member_id].joining is None:
            self._drop(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self._someone_left()

    def _drop(self, member_id: str, code: ErrorCode) -> None:
        member = self.members.pop(member_id)
        if member.expiry is not None:
            member.expiry.cancel()
        if member.joining is not None:
            member.joining.set_result(JoinGroupResponse(error_code=code))

    def _someone_left(self) -> None:
        if not self._is_rebalancing:
            self._begin()
        if all(member.joining for member in self.members.values()):
            self._complete()

    # In the generation.

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        code = self._check(request, request.generation_id)
        if code:
            return SyncGroupResponse(error_code=code)
        assigned = self._assigned
        assert assigned is not None
        if request.assignments and not assigned.done():
            given = {one.member_id: bytes(one.assignment) for one in request.assignments}
            self._audit(given)
            assigned.set_result(given)
        try:
            found = await asyncio.shield(assigned)
        except asyncio.CancelledError:
            if not assigned.cancelled():
                raise
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return SyncGroupResponse(assignment=found.get(request.member_id, b""))

    def _audit(self, given: dict[str, bytes]) -> None:
        owners = Counter(one for data in given.values() for one in decode_assignment(data))
        twice = [partition for partition, count in owners.items() if count > 1]
        if twice:
            self.wrong.append(f"{twice} have two owners in generation {self.generation}")

    def _check(self, request: Any, generation: int) -> ErrorCode:
        member_id, instance = request.member_id, request.group_instance_id
        if instance is not None and self._static.get(instance) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._lives(member_id)
        return ErrorCode.REBALANCE_IN_PROGRESS if self._is_rebalancing else ErrorCode.NONE

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._check(request, request.generation_id))

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        for identity in request.members:
            if identity.member_id in self.members:
                self._drop(identity.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                self._someone_left()
        return LeaveGroupResponse()

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self._check(request, request.generation_id_or_member_epoch)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            code = ErrorCode.NONE  # members may commit until the next generation begins
        if self._assigned is not None and not self._assigned.done() and not self._is_rebalancing:
            code = code or ErrorCode.REBALANCE_IN_PROGRESS
        self.refused[code.name] += 1
        for topic in request.topics if not code else ():
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                before = self.committed.get(partition, 0)
                if part.committed_offset < before:
                    self.wrong.append(f"{partition}: from {before} to {part.committed_offset}")
                self.committed[partition] = part.committed_offset
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
