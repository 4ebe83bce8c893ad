"""A link between two real brokers: the same bytes at the same offsets, or a trouble."""

import pytest

from qbus.clients import EARLIEST, LATEST, TopicPartition
from qbus.clients.mirror.provenance import PATH, Provenance
from qbus.clients.mirror.status import PartitionState, Trouble
from qbus.clients.types import ConfigKind

from .scene import Idcs, Scene, eventually, reached

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


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
        found = await s.target.describe_config(ConfigKind.TOPIC, s.target_topic)
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
        mirrored = TopicPartition(s.target_topic, 0)
        assert (await s.target.list_offsets({mirrored: EARLIEST}))[mirrored].offset == 30
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
        assert (await s.batches(s.there, s.target_topic, 0))[5:] == await s.batches(s.here, name, 0)


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
        before = await s.batches(s.there, s.target_topic, 0)
        async with s.link() as link:
            (status,) = await eventually(link, lambda found: found and found[0].trouble)
            assert status.trouble is Trouble.SOURCE_LOST_DATA
            assert status.state is PartitionState.STOPPED
        assert await s.batches(s.there, s.target_topic, 0) == before


async def test_a_topic_created_anew_stops_the_copy_until_that_is_deleted(
    idcs: Idcs, name: str
) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        async with s.link() as link:
            await eventually(link, reached(50))
            before = await s.batches(s.there, s.target_topic, 0)
            await s.source.delete_topic(name)
            await eventually(
                link, lambda found: [one.trouble for one in found] == [Trouble.SOURCE_DELETED]
            )
            await s.source.create_topic(name, partitions=1)
            await s.send(0, count=30)
            await eventually(
                link, lambda found: [one.trouble for one in found] == [Trouble.SOURCE_RECREATED]
            )
            assert await s.batches(s.there, s.target_topic, 0) == before
            await s.target.delete_topic(s.target_topic)
            await eventually(link, reached(150))
        await s.assert_equal(0)


async def test_an_unrelated_topic_at_the_target_is_not_touched(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        await s.target.create_topic(s.target_topic, partitions=1)
        async with s.link() as link:
            (status,) = await eventually(link, lambda found: found)
            assert status.trouble is Trouble.UNRELATED_TOPIC
        place = TopicPartition(s.target_topic, 0)
        assert (await s.target.list_offsets({place: LATEST}))[place].offset == 0


async def test_a_shorter_route_continues_where_a_longer_one_stopped(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        provenance = Provenance("a", await s.topic_id(), ("a", "c"))
        await s.target.create_topic(s.target_topic, partitions=1, config=provenance.config())
        async with s.link() as link:
            await eventually(link, reached(50))
        await s.assert_equal(0)


async def test_a_batch_after_a_gap_is_refused(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        await s.create_copy()
        with pytest.raises(AssertionError):
            await s.write_as_mirror(10, 5)
        place = TopicPartition(s.target_topic, 0)
        assert (await s.target.list_offsets({place: LATEST}))[place].offset == 0
