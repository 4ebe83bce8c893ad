"""Syncing offsets: of every group that can be synced, and why others are skipped."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest

from qbus.clients import GroupListing, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from qbus.clients.errors import PartialFailure
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.groups import offset_sync as module
from qbus.clients.mirror.groups.offset_sync import OffsetSync
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.routes import Topic
from qbus.errors import ApiError, ErrorCode

ID = UUID(int=1)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


class FakeCluster:
    """What both clusters are asked, answered from memory."""

    def __init__(self, *topics: Topic) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.types: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}
        self.ends = {THERE: 100}
        self.broken: set[str] = set()
        self.joins_meanwhile: set[str] = set()

    def commit(self, group: str, where: TopicPartition, offset: int) -> None:
        self.groups.setdefault(group, {})[where] = OffsetAndMetadata(offset)

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, self.types.get(name, "consumer"), "") for name in self.groups]

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if group in self.broken:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator")
        found = self.groups.get(group, {})
        return {w: at for w, at in found.items() if partitions is None or w in set(partitions)}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        found = {w: OffsetAndTimestamp(self.ends[w], -1) for w in wanted if w in self.ends}
        missing = {
            where: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
            for where in wanted
            if where not in self.ends
        }
        if missing:
            raise PartialFailure(missing, found)
        return found

    async def describe_group(self, group: str) -> Any:
        if group not in self.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "there is none")
        return type("Description", (), {"members": self.members.get(group, [])})

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        if group in self.joins_meanwhile:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "it has members")
        self.groups.setdefault(group, {}).update(offsets)


@pytest.fixture
def source() -> FakeCluster:
    return FakeCluster(Topic("orders", ID, 1, {}))


@pytest.fixture
def target() -> FakeCluster:
    return FakeCluster(Topic("a.orders", UUID(int=2), 1, Provenance("a", str(ID), ("a",)).config()))


@pytest.fixture
def offset_sync(
    source: FakeCluster, target: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> OffsetSync:
    class Admin:
        @staticmethod
        def over(cluster: FakeCluster) -> FakeCluster:
            return cluster

    async def read_topics(cluster: FakeCluster) -> dict[str, Topic]:
        return cluster.topics

    monkeypatch.setattr(module, "Admin", Admin)
    monkeypatch.setattr(module, "read_topics", read_topics)
    config = LinkConfig("a", "b", "h:1", "h:2", (".*",))
    return OffsetSync(config, source, target)  # type: ignore[arg-type]


def at(cluster: FakeCluster, group: str) -> int | None:
    found = cluster.groups.get(group, {}).get(THERE)
    return None if found is None else found.offset


async def test_every_group_gets_its_offsets(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("one", HERE, 40)
    source.commit("two", HERE, 140)
    carried = await offset_sync.sync()
    assert [one.group for one in carried] == ["one", "two"]
    assert (at(target, "one"), at(target, "two")) == (40, 100)
    assert carried[1].offsets == {THERE: 100}


async def test_groups_that_are_no_consumers_are_left_out(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("connect", HERE, 40)
    source.types["connect"] = "connect"
    source.commit("qbus-mirror-c-a", HERE, 40)
    source.commit("elsewhere", TopicPartition("local", 0), 40)
    assert await offset_sync.sync() == []
    assert target.groups == {}


async def test_a_group_with_members_at_the_target_is_left_alone(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("busy", HERE, 40)
    target.commit("busy", THERE, 10)
    target.members["busy"] = ["somebody"]
    (found,) = await offset_sync.sync(backwards=True)
    assert found.skipped is not None
    assert at(target, "busy") == 10


async def test_members_that_join_in_between_are_left_alone_as_well(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("busy", HERE, 40)
    target.joins_meanwhile.add("busy")
    (found,) = await offset_sync.sync()
    assert "members" in str(found.skipped)


async def test_a_failing_group_does_not_stop_others(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("bad", HERE, 40)
    source.commit("good", HERE, 40)
    source.broken.add("bad")
    bad, good = await offset_sync.sync()
    assert (bad.skipped, good.skipped) == ("no coordinator", None)
    assert at(target, "good") == 40


async def test_a_partition_that_the_target_does_not_have_yet_gets_nothing(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("one", HERE, 40)
    source.commit("one", TopicPartition("orders", 1), 40)
    (found,) = await offset_sync.sync()
    assert found.offsets == {THERE: 40}


async def test_only_the_requested_groups_are_synced(
    offset_sync: OffsetSync, source: FakeCluster, target: FakeCluster
) -> None:
    source.commit("one", HERE, 40)
    source.commit("two", HERE, 40)
    await offset_sync.sync(["two"])
    assert (at(target, "one"), at(target, "two")) == (None, 40)
