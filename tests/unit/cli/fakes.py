"""Clients that remember what they were asked, and answer from dictionaries."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from qbus.clients.types import (
    EARLIEST,
    LATEST,
    BatchMetadata,
    GroupDescription,
    GroupOffset,
    MemberDescription,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode

NODE = Node(1, "127.0.0.1", 9092)


class FakeAdmin:
    """An admin client of topics with records from ``first`` to ``end``, and of groups."""

    def __init__(self) -> None:
        self.ranges: dict[TopicPartition, tuple[int, int]] = {}
        self.times: dict[int, int] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.members: dict[str, list[MemberDescription]] = {}
        self.problems: dict[TopicPartition, str] = {}
        self.unread: ApiError | None = None

    def add_topic(self, name: str, *ranges: tuple[int, int]) -> None:
        self.ranges |= {TopicPartition(name, i): ends for i, ends in enumerate(ranges)}

    async def describe_topic(self, name: str) -> TopicDescription:
        indexes = [p.partition for p in self.ranges if p.topic == name]
        if not indexes:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        partitions = tuple(PartitionDescription(i, 1, 0, (1,), (1,), ()) for i in indexes)
        return TopicDescription(name, UUID(int=1), False, partitions)

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {p: OffsetAndTimestamp(self._offset(p, at), -1) for p, at in partitions.items()}

    async def describe_group(self, group: str) -> GroupDescription:
        if group not in self.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
        members = tuple(self.members.get(group, ()))
        state = "Stable" if members else "Empty"
        return GroupDescription(group, state, "consumer", "range", NODE, members)

    async def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] = ()
    ) -> list[GroupOffset]:
        if self.unread is not None:
            raise self.unread
        return [
            GroupOffset(p.topic, p.partition, offset, "", *self.ranges[p], self.problems.get(p, ""))
            for p, offset in sorted(self.groups.get(group, {}).items())
        ]

    async def committed_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {p: OffsetAndMetadata(at) for p, at in self.groups.get(group, {}).items()}

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.groups.setdefault(group, {}).update(offsets)

    def _offset(self, partition: TopicPartition, at: int) -> int:
        start, end = self.ranges[partition]
        return {EARLIEST: start, LATEST: end}.get(at, self.times.get(at, -1))


class FakeProducer:
    """A producer whose deliveries are decided by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[bytes], Sequence[bytes | None] | None, int | None]] = []
        self.deliveries: list[asyncio.Future[list[BatchMetadata]]] = []
        self.error: ApiError | None = None
        self.closed_within: float | None = None

    async def close(self, timeout: float | None = None) -> None:
        self.closed_within = timeout

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: object = None,
        partition: int | None = None,
        timestamps: object = None,
    ) -> asyncio.Future[list[BatchMetadata]]:
        if self.error is not None:
            raise self.error
        assert headers is None
        assert timestamps is None
        self.sent.append((topic, list(values), keys, partition))
        delivery = asyncio.get_running_loop().create_future()
        self.deliveries.append(delivery)
        return delivery

    async def flush(self) -> None:
        """Whoever waits for the deliveries sees them done, as with a real producer."""
