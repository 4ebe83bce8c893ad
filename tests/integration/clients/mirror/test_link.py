"""A link between two real brokers: the same bytes at the same offsets, or a trouble."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from qbus.clients import EARLIEST, LATEST, TopicPartition
from qbus.clients.mirror.provenance import PATH, Provenance
from qbus.clients.mirror.status import PartitionState, Trouble
from qbus.clients.types import ConfigKind

from .scene import Idcs, Scene, eventually, has_trouble, reached

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def scene(idcs: Idcs, name: str) -> AsyncIterator[Scene]:
    """A topic of one partition with 50 records at the source."""
    async with Scene(idcs, name) as made:
        await made.source.create_topic(name, partitions=1)
        await made.send(0)
        yield made


async def test_bytes_and_offsets_are_the_same_and_follow(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as scene:
        await scene.source.create_topic(name, partitions=2, config={"retention.ms": "-1"})
        await scene.send(0)
        await scene.send(1, count=7)
        async with scene.link() as link:
            await eventually(link, reached(50, 35))
            await scene.send(0, batches=1)
            await eventually(link, reached(60, 35))
            await scene.source.create_partitions(name, 3)
            await scene.send(2)
            await eventually(link, reached(60, 35, 50))
            assert all(one.state is PartitionState.CURRENT for one in link.status().partitions)
        await scene.assert_equal(0, 1, 2)
        found = await scene.target.describe_config(ConfigKind.TOPIC, scene.target_topic)
        config = {entry.name: entry.value for entry in found}
        assert config["retention.ms"] == "-1"
        assert config[PATH] == "a"


async def test_a_copy_begins_where_its_source_does(scene: Scene) -> None:
    place = TopicPartition(scene.name, 0)
    await scene.source.delete_records({place: 30})
    async with scene.link() as link:
        await eventually(link, reached(50))
    mirrored = TopicPartition(scene.target_topic, 0)
    assert (await scene.target.list_offsets({mirrored: EARLIEST}))[mirrored].offset == 30
    await scene.assert_equal(0)


async def test_processes_share_partitions_and_take_over(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as scene:
        await scene.source.create_topic(name, partitions=4)
        for partition in range(4):
            await scene.send(partition)
        async with scene.link() as second:
            async with scene.link() as first:
                await eventually(first, lambda found: len(found) == 2)
                await eventually(second, lambda found: len(found) == 2)
                assert {one.partition for one in first.status().partitions}.isdisjoint(
                    one.partition for one in second.status().partitions
                )
            await eventually(second, reached(50, 50, 50, 50))
            for partition in range(4):
                await scene.send(partition, batches=1)
            await eventually(second, reached(60, 60, 60, 60))
        await scene.assert_equal(0, 1, 2, 3)


async def test_a_link_that_begins_again_copies_nothing_twice(scene: Scene) -> None:
    async with scene.link() as link:
        await eventually(link, reached(50))
    await scene.send(0)
    async with scene.link() as link:
        await eventually(link, reached(100))
        assert link.status().records == 50
    await scene.assert_equal(0)


async def test_retention_that_overtakes_leaves_a_gap_and_is_told_of(scene: Scene) -> None:
    async with scene.link() as link:
        await eventually(link, reached(50))
    await scene.send(0)
    await scene.source.delete_records({TopicPartition(scene.name, 0): 70})
    async with scene.link() as link:
        (status,) = await eventually(link, reached(100))
        assert status.trouble is Trouble.OVERTAKEN
    assert (await scene.batches(scene.there, scene.target_topic, 0))[5:] == await scene.batches(
        scene.here, scene.name, 0
    )


@pytest.mark.parametrize(
    "wrote",
    [
        pytest.param((0, 60, b"v"), id="its log ends before the copy's"),
        pytest.param((0, 10, b"v"), id="its log holds something else"),
    ],
)
async def test_a_source_that_lost_data_stops_the_copy(
    scene: Scene, wrote: tuple[int, int, bytes]
) -> None:
    await scene.create_copy()
    await scene.write_as_mirror(*wrote)
    before = await scene.batches(scene.there, scene.target_topic, 0)
    async with scene.link() as link:
        (status,) = await eventually(link, lambda found: found and found[0].trouble)
        assert status.trouble is Trouble.SOURCE_LOST_DATA
        assert status.state is PartitionState.STOPPED
    assert await scene.batches(scene.there, scene.target_topic, 0) == before


async def test_a_topic_created_anew_stops_the_copy_until_that_is_deleted(scene: Scene) -> None:
    async with scene.link() as link:
        await eventually(link, reached(50))
        before = await scene.batches(scene.there, scene.target_topic, 0)
        await scene.source.delete_topic(scene.name)
        await eventually(link, has_trouble(Trouble.SOURCE_DELETED))
        await scene.source.create_topic(scene.name, partitions=1)
        await scene.send(0, count=30)
        await eventually(link, has_trouble(Trouble.SOURCE_RECREATED))
        assert await scene.batches(scene.there, scene.target_topic, 0) == before
        await scene.target.delete_topic(scene.target_topic)
        await eventually(link, reached(150))
    await scene.assert_equal(0)


async def test_an_unrelated_topic_at_the_target_is_not_touched(scene: Scene) -> None:
    await scene.target.create_topic(scene.target_topic, partitions=1)
    async with scene.link() as link:
        (status,) = await eventually(link, lambda found: found)
        assert status.trouble is Trouble.UNRELATED_TOPIC
    place = TopicPartition(scene.target_topic, 0)
    assert (await scene.target.list_offsets({place: LATEST}))[place].offset == 0


async def test_a_shorter_route_continues_where_a_longer_one_stopped(scene: Scene) -> None:
    provenance = Provenance("a", await scene.topic_id(), ("a", "c"))
    await scene.target.create_topic(scene.target_topic, partitions=1, config=provenance.config())
    async with scene.link() as link:
        await eventually(link, reached(50))
    await scene.assert_equal(0)


async def test_a_batch_after_a_gap_is_refused(scene: Scene) -> None:
    await scene.create_copy()
    with pytest.raises(AssertionError):
        await scene.write_as_mirror(10, 5)
    place = TopicPartition(scene.target_topic, 0)
    assert (await scene.target.list_offsets({place: LATEST}))[place].offset == 0
