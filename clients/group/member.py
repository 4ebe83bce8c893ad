"""The requests of a group member: JoinGroup, SyncGroup, LeaveGroup.

In Kafka's classic protocol, JoinGroup gathers the members and picks a leader, which assigns the
partitions; SyncGroup distributes the assignment.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from qbus.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.wire import ApiKey
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

from ..committed import Membership
from ..errors import check
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .assignors import Assignments, Candidate, Topics
from .options import GroupOptions
from .state import MemberState, Phase, Remedy

_log = logging.getLogger(__name__)

_PROTOCOL_TYPE = "consumer"
_ANSWER_MARGIN = 5.0
"""Seconds that the coordinator may take beyond the rebalance it waits for."""
Lookup = Callable[[set[str]], Awaitable[Topics]]


class Member:
    """Asks the coordinator on behalf of a :class:`MemberState`.

    ``look_up`` finds the topics that the group wants, when this member leads it.
    """

    def __init__(
        self, cluster: Cluster, options: GroupOptions, state: MemberState, look_up: Lookup
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._state = state
        self._look_up = look_up

    async def join(
        self, topics: Iterable[str], owned: Iterable[TopicPartition]
    ) -> tuple[TopicPartition, ...] | Remedy:
        """Join, or join again; return the assigned partitions, or what to do first.

        ``owned`` are the partitions kept meanwhile. Raises :class:`~qbus.errors.ApiError` for
        errors without a remedy.
        """
        sent = self._state.start()
        try:
            joined = await self._ask_to_join(tuple(topics), tuple(owned))
            if self._state.membership != sent or self._state.phase is not Phase.JOINING:
                return Remedy.REJOIN  # the place was given up meanwhile
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._state.named(joined.member_id)
                return Remedy.REJOIN
            check(joined.error_code, of=f"group {self._options.group}")
            protocol = joined.protocol_name or ""
            sent = self._state.joined(joined.member_id, joined.generation_id, protocol)
            assignments = await self._assign(joined)
            partitions = await self._sync(sent, protocol, assignments)
        except ApiError as error:
            return self.refused(error, sent)
        self._cluster.troubles.solved(f"group {self._options.group}")
        return partitions if self._state.synced(sent, partitions) else Remedy.REJOIN

    def refused(self, error: ApiError, sent: Membership) -> Remedy:
        """Return what to do about an error of the coordinator; raise it if nothing helps."""
        remedy = self._state.refused(error, sent)
        if remedy is Remedy.FAIL:
            raise error
        if remedy is Remedy.MOVED:
            self._cluster.forget_coordinator(self._options.group)
        if remedy in {Remedy.RETRY, Remedy.MOVED}:
            self._cluster.troubles.met(f"group {self._options.group}", error, grace=USUAL_S)
        if remedy in {Remedy.NEW_GENERATION, Remedy.NEW_MEMBER}:
            _log.warning(
                "lost the membership of group %s: %s", self._options.group, error.code.name
            )
        return remedy

    async def leave(self, reason: str) -> None:
        """Leave at once; a static member keeps its place for its return (KIP-345)."""
        member_id, _, instance_id = self._state.membership
        self._state.lose(reason)
        if not member_id or instance_id is not None:
            return
        identity = MemberIdentity(member_id=member_id, group_instance_id=None, reason=reason)
        request = LeaveGroupRequest(group_id=self._options.group, members=[identity])
        # Not on the group's connection, where a JoinGroup may wait for other members.
        await self._cluster.ask_coordinator(
            self._options.group, ApiKey.LEAVE_GROUP, request, connection_group=ConnectionGroup.MAIN
        )

    async def _ask_to_join(
        self, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> JoinGroupResponse:
        state, options = self._state, self._options
        previous = state.previous
        request = JoinGroupRequest(
            group_id=options.group,
            session_timeout_ms=int(options.session_timeout * 1000),
            rebalance_timeout_ms=int(options.rebalance_timeout * 1000),
            member_id=state.membership.member_id,
            group_instance_id=state.membership.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(
                        Subscription(
                            topics,
                            owned,
                            assignor.user_data(previous),
                            state.membership.generation,
                            options.rack,
                        )
                    ),
                )
                for assignor in options.assignors
            ],
            reason=state.rejoin_reason,
        )
        timeout = options.rebalance_timeout + _ANSWER_MARGIN
        joined: JoinGroupResponse = await self._ask(ApiKey.JOIN_GROUP, request, timeout=timeout)
        return joined

    async def _assign(self, joined: JoinGroupResponse) -> Assignments:
        """Return all members' partitions, if this member leads the group."""
        if joined.leader != joined.member_id:
            return {}
        members = [
            Candidate(member.member_id, member.group_instance_id, self._subscription_of(member))
            for member in joined.members
        ]
        topics = await self._look_up(
            {topic for member in members for topic in member.subscription.topics}
        )
        if joined.skip_assignment:  # KIP-814: the leader only watches the topics
            return {}
        for assignor in self._options.assignors:
            if assignor.name == joined.protocol_name:
                return assignor.assign(members, topics)
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {self._options.group} chose {joined.protocol_name!r}, which we do not have",
        )

    def _subscription_of(self, member: Any) -> Subscription:
        try:
            return decode_subscription(bytes(member.metadata))
        except WireError as error:
            _log.warning("member %s gets no partitions: %s", member.member_id, error)
            return Subscription(())

    async def _sync(
        self, sent: Membership, protocol: str, assignments: Mapping[str, list[TopicPartition]]
    ) -> tuple[TopicPartition, ...]:
        request = SyncGroupRequest(
            group_id=self._options.group,
            generation_id=sent.generation,
            member_id=sent.member_id,
            group_instance_id=sent.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode_assignment(partitions)
                )
                for member_id, partitions in assignments.items()
            ],
        )
        timeout = self._options.rebalance_timeout + _ANSWER_MARGIN
        synced: SyncGroupResponse = await self._ask(ApiKey.SYNC_GROUP, request, timeout=timeout)
        check(synced.error_code, of=f"group {self._options.group}")
        return decode_assignment(bytes(synced.assignment))

    async def _ask(self, api: ApiKey, request: Any, *, timeout: float | None = None) -> Any:
        return await self._cluster.ask_coordinator(
            self._options.group, api, request, timeout=timeout
        )
