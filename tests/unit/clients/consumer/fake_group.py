"""A group coordinator of a few lines on top of the fake broker: members join, one leads."""

import asyncio
from typing import Any

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
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
from tests.support.fake_broker import FakeBroker


class FakeGroup:
    """One group. A rebalance ends when every known member has joined again."""

    def __init__(self, broker: FakeBroker) -> None:
        self.generation = 0
        self.members: dict[str, JoinGroupRequest] = {}
        self.left: list[str] = []
        self._broker = broker
        self._joining: dict[str, asyncio.Future[None]] = {}
        self._assignments: dict[str, bytes] = {}
        self._synced = asyncio.Event()
        self._ids = 0
        broker.handlers |= {
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave,
            ApiKey.OFFSET_COMMIT: self.commit,
        }

    @property
    def leader(self) -> str:
        return min(self.members)

    @property
    def is_rebalancing(self) -> bool:
        return bool(self._joining)

    def expel(self, member_id: str) -> None:
        del self.members[member_id]

    async def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            self._ids += 1
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self._ids}"
            )
        if request.member_id not in self.members and int(request.member_id[1:]) <= 0:
            return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.members[request.member_id] = request
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._joining[request.member_id] = mine
        if self._joining.keys() == self.members.keys():
            self._complete_join()
        await mine
        return self._joined(request.member_id)

    def _complete_join(self) -> None:
        self.generation += 1
        self._synced.clear()
        for waiting in self._joining.values():
            waiting.set_result(None)
        self._joining.clear()

    def _joined(self, member_id: str) -> JoinGroupResponse:
        members = [
            JoinGroupResponseMember(member_id=member, metadata=request.protocols[0].metadata)
            for member, request in sorted(self.members.items())
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name="range",
            leader=self.leader,
            member_id=member_id,
            members=members if member_id == self.leader else [],
        )

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if request.generation_id != self.generation:
            return SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        if request.member_id == self.leader:
            self._assignments = {a.member_id: bytes(a.assignment) for a in request.assignments}
            self._synced.set()
        await self._synced.wait()
        return SyncGroupResponse(assignment=self._assignments[request.member_id])

    def _check(self, request: Any, generation: int) -> ErrorCode:
        if request.member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.is_rebalancing else ErrorCode.NONE

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._check(request, request.generation_id))

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        for member in request.members:
            self.members.pop(member.member_id, None)
            self.left.append(member.member_id)
        return LeaveGroupResponse()

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = ErrorCode.NONE
        if request.member_id or request.generation_id_or_member_epoch >= 0:
            code = self._check(request, request.generation_id_or_member_epoch)
        if code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            return self._broker.offset_commit(request)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
