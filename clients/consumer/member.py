"""A member of a group: it joins, keeps alive by heartbeats, and leaves.

Kafka's classic group protocol: JoinGroup collects the members and picks one of them, who assigns
the partitions; SyncGroup hands the assignment out.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from qbus.errors import ApiError, ErrorCode, QbusError, WireError
from qbus.wire import ApiKey
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from qbus.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from qbus.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from qbus.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

from ..cluster import Cluster
from ..committed import Membership
from ..consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ..coordination import MOVED
from ..errors import check
from ..types import TopicPartition
from .assignor import RANGE, Candidate, assign_ranges
from .options import GroupOptions

_log = logging.getLogger(__name__)

_PROTOCOL_TYPE = "consumer"
_ANSWER_MARGIN = 5.0
"""Seconds that the coordinator may take beyond the rebalance it waits for."""
_EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_JOIN_AGAIN = _EXPELLED | {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS}


class Member:
    """One consumer's place in its group.

    ``needs_join`` tells that it has none, or that the group is rebalancing; ``failure`` that it
    cannot go on. ``changed`` is set when either changes.
    """

    def __init__(self, cluster: Cluster, options: GroupOptions, changed: asyncio.Event) -> None:
        self.needs_join = True
        self.failure: QbusError | None = None
        self.assigned_counts: Mapping[str, int] | None = None
        """As the leader: how many partitions the topics had that it assigned."""
        self._cluster = cluster
        self._options = options
        self._changed = changed
        self._member_id = ""
        self._generation = -1
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def membership(self) -> Membership:
        """What a commit has to prove."""
        return Membership(self._member_id, self._generation, self._options.instance_id)

    async def join(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Join, or join again; the partitions that are ours from now on."""
        await self._stop_heartbeats()
        while True:
            try:
                partitions = await self._join_once(topics)
            except ApiError as error:
                if error.code not in _JOIN_AGAIN:
                    raise
                self._note(error.code)
            else:
                break
        self.needs_join = False
        self._heartbeats = asyncio.create_task(self._beat())
        return partitions

    async def leave(self) -> None:
        """Leave at once, but for a static member, whose place is kept for its return."""
        await self._stop_heartbeats()
        if not self._member_id or self._options.instance_id is not None:
            return
        member = MemberIdentity(member_id=self._member_id, group_instance_id=None)
        request = LeaveGroupRequest(group_id=self._options.group, members=[member])
        self._member_id = ""
        await self._ask(ApiKey.LEAVE_GROUP, request)

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused with ``code``, which may say that we have lost our place."""
        if code in _JOIN_AGAIN:
            self._note(code)

    async def _join_once(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        joined: JoinGroupResponse = await self._ask(
            ApiKey.JOIN_GROUP,
            JoinGroupRequest(
                group_id=self._options.group,
                session_timeout_ms=int(self._options.session_timeout * 1000),
                rebalance_timeout_ms=int(self._options.rebalance_timeout * 1000),
                member_id=self._member_id,
                group_instance_id=self._options.instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(
                        name=RANGE, metadata=encode_subscription(Subscription(topics))
                    )
                ],
            ),
            timeout=self._options.rebalance_timeout + _ANSWER_MARGIN,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
        check(joined.error_code, of=f"group {self._options.group}")
        self._member_id = joined.member_id
        self._generation = joined.generation_id
        assignments = await self._assign(joined)
        synced: SyncGroupResponse = await self._ask(
            ApiKey.SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._options.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._options.instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=RANGE,
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=member_id, assignment=encode_assignment(partitions)
                    )
                    for member_id, partitions in assignments.items()
                ],
            ),
            timeout=self._options.rebalance_timeout + _ANSWER_MARGIN,
        )
        check(synced.error_code, of=f"group {self._options.group}")
        return decode_assignment(bytes(synced.assignment))

    async def _assign(self, joined: JoinGroupResponse) -> Mapping[str, list[TopicPartition]]:
        """As the leader, everyone's partitions."""
        self.assigned_counts = None
        if joined.leader != joined.member_id or joined.skip_assignment:
            return {}
        members = [
            Candidate(
                member.member_id,
                member.group_instance_id,
                decode_subscription(bytes(member.metadata)).topics,
            )
            for member in joined.members
        ]
        topics = {topic for member in members for topic in member.topics}
        await self._cluster.refresh(topics)
        self.assigned_counts = self._cluster.metadata.partition_counts(topics)
        return assign_ranges(members, self.assigned_counts)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.heartbeat_interval)
            request = HeartbeatRequest(
                group_id=self._options.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._options.instance_id,
            )
            try:
                response: HeartbeatResponse = await self._ask(ApiKey.HEARTBEAT, request)
                check(response.error_code, of=f"group {self._options.group}")
            except ApiError as error:
                if error.code in _JOIN_AGAIN:
                    self._note(error.code)
                elif not error.retriable:
                    self.failure = error
                self._changed.set()
                if self.failure is not None or error.code in _EXPELLED:
                    return
            except WireError as error:
                self.failure = error
                self._changed.set()
                return

    def _note(self, code: ErrorCode) -> None:
        """The group says that we have to join (again)."""
        self.needs_join = True
        if code in _EXPELLED:
            _log.warning("expelled from group %s: %s", self._options.group, code.name)
            self._generation = -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None

    async def _ask(self, api: ApiKey, request: Any, *, timeout: float | None = None) -> Any:
        group = self._options.group
        response = await self._cluster.ask_coordinator(group, api, request, timeout=timeout)
        if response.error_code in MOVED:
            self._cluster.forget_coordinator(group)
        return response
