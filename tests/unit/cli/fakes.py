"""Clients that remember what they were asked, and answer from dictionaries."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from qbus.clients.types import (
    EARLIEST,
    LATEST,
    BatchMetadata,
    ClusterDescription,
    ConfigEntry,
    ConfigKind,
    ConfigSource,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDir,
    MemberDescription,
    Node,
    OffsetAndTimestamp,
    PartitionDescription,
    ReplicaSize,
    TopicDescription,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode

NODE = Node(1, "127.0.0.1", 9092)


def topic_description(name: str, partitions: int) -> TopicDescription:
    return TopicDescription(
        name,
        UUID(int=1),
        False,
        tuple(PartitionDescription(i, 1, 0, (1,), (1,), ()) for i in range(partitions)),
    )


class FakeAdmin:
    """An admin client of a cluster of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.ranges: dict[TopicPartition, tuple[int, int]] = {}
        self.times: dict[int, int] = {}
        self.config: dict[str, str] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.members: dict[str, list[MemberDescription]] = {}
        self.created: list[tuple[str, int, int, dict[str, str], bool]] = []
        self.nodes: tuple[Node, ...] = (NODE,)
        self.tells_sizes = True

    def add_topic(self, name: str, *ranges: tuple[int, int]) -> None:
        self.topics[name] = len(ranges)
        self.ranges |= {TopicPartition(name, i): ends for i, ends in enumerate(ranges)}

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("cluster", 1, self.nodes)

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        return [topic_description(name, count) for name, count in sorted(self.topics.items())]

    async def describe_topic(self, name: str) -> TopicDescription:
        self._check_topic(name)
        return topic_description(name, self.topics[name])

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        validate_only: bool,
    ) -> None:
        if name in self.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        self.created.append((name, partitions, replication_factor, dict(config), validate_only))
        if not validate_only:
            self.add_topic(name, *[(0, 0)] * max(partitions, 1))

    async def delete_topic(self, name: str) -> None:
        self._check_topic(name)
        del self.topics[name]

    async def create_partitions(self, topic: str, total: int) -> None:
        self.add_topic(topic, *[(0, 0)] * total)

    async def describe_config(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        entry = ConfigEntry("segment.ms", "1", ConfigSource.DEFAULT, False, False, "Age.")
        changed = [
            ConfigEntry(key, value, ConfigSource.TOPIC, False, False, None)
            for key, value in self.config.items()
        ]
        return [*changed, entry]

    async def alter_config(
        self,
        kind: ConfigKind,
        name: str,
        *,
        set: Mapping[str, str],  # noqa: A002 - the client's name
        unset: Iterable[str],
    ) -> None:
        self.config |= set
        for key in unset:
            self.config.pop(key, None)

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {p: OffsetAndTimestamp(self._offset(p, at), -1) for p, at in partitions.items()}

    async def describe_log_dirs(self) -> list[LogDir]:
        if not self.tells_sizes:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        replicas = [ReplicaSize(p.topic, p.partition, 4096) for p in self.ranges]
        return [LogDir(1, "/data", True, -1, -1, tuple(replicas))]

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(group, "consumer", "Empty") for group in sorted(self.groups)]

    async def describe_group(self, group: str) -> GroupDescription:
        if group not in self.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
        members = tuple(self.members.get(group, ()))
        state = "Stable" if members else "Empty"
        return GroupDescription(group, state, "consumer", "range", NODE, members)

    async def group_offsets(self, group: str) -> list[GroupOffset]:
        return [
            GroupOffset(p.topic, p.partition, offset, "", *self.ranges[p])
            for p, offset in sorted(self.groups.get(group, {}).items())
        ]

    async def reset_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.groups.setdefault(group, {}).update(offsets)

    async def delete_group(self, group: str) -> None:
        await self.describe_group(group)
        del self.groups[group]

    def _check_topic(self, name: str) -> None:
        if name not in self.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")

    def _offset(self, partition: TopicPartition, at: int) -> int:
        start, end = self.ranges[partition]
        return {EARLIEST: start, LATEST: end}.get(at, self.times.get(at, -1))

    @asynccontextmanager
    async def connected(self, bootstrap: str) -> Any:
        """Stand in for ``session.administration``."""
        yield self


class FakeProducer:
    """A producer whose deliveries are decided by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[bytes], Sequence[bytes | None] | None, int | None]] = []
        self.deliveries: list[asyncio.Future[list[BatchMetadata]]] = []
        self.error: ApiError | None = None

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[list[BatchMetadata]]:
        if self.error is not None:
            raise self.error
        self.sent.append((topic, list(values), keys, partition))
        delivery = asyncio.get_running_loop().create_future()
        self.deliveries.append(delivery)
        return delivery

    async def flush(self) -> None:
        """Whoever waits for the deliveries sees them done, as with a real producer."""
