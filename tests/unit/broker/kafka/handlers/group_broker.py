"""A broker of groups alone, asked over the wire format at any version of an API."""

from importlib import import_module
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

from qbus.broker.authorization import AccessControl
from qbus.broker.consumer_group import ConsumerGroups
from qbus.broker.group import GroupCoordinator, Offset
from qbus.broker.kafka.context import RequestContext
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.net.peer import Peer
from qbus.broker.share import MemberHeartbeat, ShareCoordinator
from qbus.config import ListenerInfo
from qbus.errors import ErrorCode
from qbus.wire import API, decode, encode
from qbus.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from qbus.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from ...group.shell import Shell, settle

NODE = BrokerInfo(7, "broker.example", 9092)


class FakeTransactions:
    """A transaction coordinator that answers what the test says, and remembers the questions."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.asked: list[tuple[Any, ...]] = []

    async def verify_group(
        self, transactional_id: str, producer_id: int, epoch: int, group: str, *, add: bool
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer_id, epoch, group, add))
        return self.answer


class _Shell(Shell):
    """A coordinator of groups of both protocols."""

    def _coordinator(self) -> GroupCoordinator:
        kinds = ConsumerGroups(self.config, self.metadata)
        return GroupCoordinator(
            self.store, self.metadata, self.config, self.clock, timers=self.timers, kinds=kinds
        )


class GroupBroker:
    def __init__(self, **config: object) -> None:
        self.access: AccessControl | None = None
        self.transactions = FakeTransactions()
        self.shell = _Shell(node_id=NODE.id, **config)
        self.metadata = self.shell.metadata
        self.brokers = self.metadata.brokers = {NODE.id: NODE}
        shell = self.shell

        async def is_consumer_group(group_id: str) -> bool:
            return await shell.groups.describe(group_id) is not None

        self.shares = ShareCoordinator(
            shell.store, self.metadata, shell.config, shell.clock, is_consumer_group
        )

    async def ask(self, version: int, request: Any) -> Any:
        """The response, after both messages went through their bytes."""
        return await self.send(version, request)

    async def send(self, version: int, request: Any) -> Any:
        api = next(api for api in API.values() if api.request is type(request))
        received = decode(api.request, version, b"".join(encode(request, version)))
        handler = import_module(f"qbus.broker.kafka.handlers.{api.key.name.lower()}")
        peer = Peer(1, "10.0.0.1", ListenerInfo.plaintext("10.0.0.9", 9092))
        context = RequestContext(api.key, version, "client", peer, self.access)
        response = handler.handle(self._broker(), context, received)
        if isawaitable(response):
            response = await response
        return decode(api.response, version, b"".join(encode(response, version)))

    def _broker(self) -> Any:
        metadata = SimpleNamespace(
            topics=self.metadata.topics,
            topics_by_id=self.metadata.topics_by_id,
            brokers=self.brokers,
        )
        return SimpleNamespace(
            groups=self.shell.groups,
            shares=self.shares,
            transactions=self.transactions,
            metadata=metadata,
            node_id=NODE.id,
            config=self.shell.config,
        )

    # Stories

    async def join(self, version: int = 9, **changes: Any) -> JoinGroupResponse:
        """A lone member's way through the first rebalance of a group."""
        first = await self.shell.soon(self.send(version, join_request(**changes)))
        if first.done() and first.result().error_code == 79:
            member_id = first.result().member_id
            again = join_request(**changes | {"member_id": member_id})
            first = await self.shell.soon(self.send(version, again))
        await self.shell.timers.advance(3)
        response: JoinGroupResponse = await first
        return response

    async def member(self, group_id: str = "g", **changes: Any) -> str:
        """The id of the one member of a stable group, which is at generation 1."""
        joined = await self.join(group_id=group_id, **changes)
        assert joined.error_code == 0
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        synced = await self.send(
            5,
            SyncGroupRequest(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=changes.get("group_instance_id"),
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=[part],
            ),
        )
        assert synced.error_code == 0
        return joined.member_id

    async def join_share_group(self, group_id: str) -> None:
        """Have a share group with a member."""
        await self.shares.heartbeat(group_id, MemberHeartbeat("m", 0, topics=("t",)))

    async def commit(self, group_id: str, topic: str, partition: int, offset: Offset) -> None:
        await self.shell.groups.commit(group_id, {(topic, partition): offset})

    async def settle(self) -> None:
        await settle()


def join_request(**changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    }
    return JoinGroupRequest(**(fields | changes))


def versions(key: str) -> range:
    """All versions of an API that are served."""
    api = next(api for api in API.values() if api.key.name == key)
    return range(api.min_version, api.max_version + 1)
