"""A link between two real brokers: the same bytes at the same offsets, or it says what is wrong."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import pytest

from qbus.clients import EARLIEST, LATEST, Admin, Producer, TopicPartition
from qbus.clients.batches import read_batches
from qbus.clients.batches.produce import produce_topics
from qbus.clients.cluster import Cluster
from qbus.clients.mirror.config import LinkConfig, Topics, Transfer
from qbus.clients.mirror.link import Link
from qbus.clients.mirror.provenance import PATH, Provenance
from qbus.clients.mirror.status import PartitionState, PartitionStatus, Trouble
from qbus.clients.types import ConfigKind
from qbus.errors import ApiError
from qbus.records import build_batch, set_base_offset
from qbus.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

Idcs = tuple[BrokerProcess, BrokerProcess]
PATIENCE = 40.0


class Scene:
    """Both IDCs, and a topic ``name`` whose copy is ``copy``."""

    def __init__(self, idcs: Idcs, name: str) -> None:
        source, target = (broker.bootstrap for broker in idcs)
        self.name, self.copy = name, f"a.{name}"
        self.config = LinkConfig(
            "a",
            "b",
            source,
            target,
            (name,),
            topics_at_target=Topics(discovery_interval_ms=200),
            transfer=Transfer(session_timeout_ms=6_000, drain_timeout_ms=2_000),
        )
        self.source, self.target = Admin(source), Admin(target)
        self.here, self.there = (Cluster(one, "test", 10.0) for one in (source, target))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in (self.source, self.target, self.here, self.there):
            await one.close()

    async def send(self, partition: int, count: int = 10, batches: int = 5) -> None:
        async with Producer(self.config.source_bootstrap, linger_ms=0, compression="lz4") as one:
            for number in range(batches):
                values = [b"%d-%d" % (number, i) for i in range(count)]
                await (await one.send_many(self.name, values, partition=partition))

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        """A process of the link, until the end of the block."""
        here, there = (Cluster(one, "test", 10.0) for one in self.bootstraps)
        link = Link(self.config, here, there)
        running = asyncio.create_task(link.run())
        try:
            yield link
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await here.close()
            await there.close()

    @property
    def bootstraps(self) -> tuple[str, str]:
        return self.config.source_bootstrap, self.config.target_bootstrap

    async def batches(self, cluster: Cluster, topic: str, partition: int) -> list[bytes]:
        """Every byte of a partition, but for the leader epochs, which are each cluster's own."""
        place = TopicPartition(topic, partition)
        admin = self.source if cluster is self.here else self.target
        start = (await admin.list_offsets({place: EARLIEST}))[place].offset
        end = (await admin.list_offsets({place: LATEST}))[place].offset
        found = read_batches(cluster, place, start, end)
        return [bytes(batch[:12]) + bytes(batch[16:]) async for _, batch in found]

    async def assert_equal(self, *partitions: int) -> None:
        for partition in partitions:
            original = await self.batches(self.here, self.name, partition)
            assert original
            assert original == await self.batches(self.there, self.copy, partition)

    async def topic_id(self) -> str:
        return str((await self.source.describe_topic(self.name)).topic_id)

    async def write_as_mirror(self, base: int, count: int, value: bytes = b"v") -> None:
        """Write to the copy what the source never had."""
        batch = build_batch([(None, value, (), 1_700_000_000_000)] * count)
        set_base_offset(batch, base, -1)
        await self.there.need([self.copy])
        data = TopicProduceData(
            name=self.copy,
            mirror_source="a",
            mirror_topic_id=await self.topic_id(),
            partition_data=[PartitionProduceData(index=0, records=batch, mirror_follows=base)],
        )
        leader = self.there.metadata.leader(self.copy, 0)
        (outcome,) = (await produce_topics(self.there, leader, [data])).values()
        assert not isinstance(outcome, ApiError)

    async def create_copy(self) -> None:
        provenance = Provenance("a", await self.topic_id(), ("a",))
        await self.target.create_topic(self.copy, partitions=1, config=provenance.config())


async def eventually(
    link: Link, holds: Callable[[tuple[PartitionStatus, ...]], object]
) -> tuple[PartitionStatus, ...]:
    """The partitions' status once ``holds`` says so; what it was last, when that never comes."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds(link.status().partitions):  # noqa: ASYNC110 - a status, no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"still {link.status()}") from None
    return link.status().partitions


def reached(*ends: int) -> Callable[[tuple[PartitionStatus, ...]], bool]:
    return lambda found: [one.target_end for one in found] == list(ends)


async def test_bytes_and_offsets_are_the_same_and_follow(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=2, config={"retention.ms": "-1"})
        await s.send(0)
        await s.send(1, count=7)
        async with s.link() as link:
            await eventually(link, reached(50, 35))
            await s.send(0, batches=1)
            await eventually(link, reached(60, 35))
            await s.source.create_partitions(name, 3)
            await s.send(2)
            await eventually(link, reached(60, 35, 50))
            assert all(one.state is PartitionState.CURRENT for one in link.status().partitions)
        await s.assert_equal(0, 1, 2)
        found = await s.target.describe_config(ConfigKind.TOPIC, s.copy)
        config = {entry.name: entry.value for entry in found}
        assert config["retention.ms"] == "-1"
        assert config[PATH] == "a"


async def test_a_copy_begins_where_its_source_does(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        place = TopicPartition(name, 0)
        await s.source.delete_records({place: 30})
        async with s.link() as link:
            await eventually(link, reached(50))
        copy = TopicPartition(s.copy, 0)
        assert (await s.target.list_offsets({copy: EARLIEST}))[copy].offset == 30
        await s.assert_equal(0)


async def test_processes_share_partitions_and_take_over(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=4)
        for partition in range(4):
            await s.send(partition)
        async with s.link() as second:
            async with s.link() as first:
                await eventually(first, lambda found: len(found) == 2)
                await eventually(second, lambda found: len(found) == 2)
                assert {one.partition for one in first.status().partitions}.isdisjoint(
                    one.partition for one in second.status().partitions
                )
            await eventually(second, reached(50, 50, 50, 50))
            for partition in range(4):
                await s.send(partition, batches=1)
            await eventually(second, reached(60, 60, 60, 60))
        await s.assert_equal(0, 1, 2, 3)


async def test_a_link_that_begins_again_copies_nothing_twice(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        async with s.link() as link:
            await eventually(link, reached(50))
        await s.send(0)
        async with s.link() as link:
            await eventually(link, reached(100))
            assert link.status().records == 50
        await s.assert_equal(0)


async def test_retention_that_overtakes_leaves_a_gap_and_is_told_of(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        async with s.link() as link:
            await eventually(link, reached(50))
        await s.send(0)
        await s.source.delete_records({TopicPartition(name, 0): 70})
        async with s.link() as link:
            (status,) = await eventually(link, reached(100))
            assert status.trouble is Trouble.OVERTAKEN
        assert (await s.batches(s.there, s.copy, 0))[5:] == await s.batches(s.here, name, 0)


@pytest.mark.parametrize(
    "wrote",
    [
        pytest.param((0, 60, b"v"), id="its log ends before the copy's"),
        pytest.param((0, 10, b"v"), id="its log holds something else"),
    ],
)
async def test_a_source_that_lost_data_stops_the_copy(
    idcs: Idcs, name: str, wrote: tuple[int, int, bytes]
) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        await s.create_copy()
        await s.write_as_mirror(*wrote)
        before = await s.batches(s.there, s.copy, 0)
        async with s.link() as link:
            (status,) = await eventually(link, lambda found: found and found[0].trouble)
            assert status.trouble is Trouble.SOURCE_LOST_DATA
            assert status.state is PartitionState.STOPPED
        assert await s.batches(s.there, s.copy, 0) == before


async def test_a_topic_created_anew_stops_the_copy_until_that_is_deleted(
    idcs: Idcs, name: str
) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        async with s.link() as link:
            await eventually(link, reached(50))
            before = await s.batches(s.there, s.copy, 0)
            await s.source.delete_topic(name)
            await eventually(
                link, lambda found: [one.trouble for one in found] == [Trouble.SOURCE_DELETED]
            )
            await s.source.create_topic(name, partitions=1)
            await s.send(0, count=30)
            await eventually(
                link, lambda found: [one.trouble for one in found] == [Trouble.SOURCE_RECREATED]
            )
            assert await s.batches(s.there, s.copy, 0) == before
            await s.target.delete_topic(s.copy)
            await eventually(link, reached(150))
        await s.assert_equal(0)


async def test_a_topic_of_the_targets_own_is_not_touched(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        await s.target.create_topic(s.copy, partitions=1)
        async with s.link() as link:
            (status,) = await eventually(link, lambda found: found)
            assert status.trouble is Trouble.UNRELATED_TOPIC
        place = TopicPartition(s.copy, 0)
        assert (await s.target.list_offsets({place: LATEST}))[place].offset == 0


async def test_a_shorter_way_takes_over_where_the_longer_one_is(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        provenance = Provenance("a", await s.topic_id(), ("a", "c"))
        await s.target.create_topic(s.copy, partitions=1, config=provenance.config())
        async with s.link() as link:
            await eventually(link, reached(50))
        await s.assert_equal(0)


async def test_what_follows_something_that_is_missing_is_refused(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        await s.create_copy()
        with pytest.raises(AssertionError):
            await s.write_as_mirror(10, 5)
        place = TopicPartition(s.copy, 0)
        assert (await s.target.list_offsets({place: LATEST}))[place].offset == 0
