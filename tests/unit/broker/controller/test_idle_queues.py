"""Idle queues are deleted by the votes of all leaders, as long as nothing has changed since."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.controller import NewTopic, TopicPlan
from qbus.broker.controller.idle_queues import IdleQueueSweep
from qbus.broker.metadata.image import BrokerInfo, Topic
from qbus.metadata import Create, Delete, Set, StoreUnavailable
from qbus.metadata.feed import announce
from qbus.metadata.znodes import (
    BrokerEpochNode,
    ChangeNode,
    ConfigNode,
    IdleQueuesNode,
    IdleVote,
    PartitionStateNode,
    TopicNode,
)
from tests.support.metadata_plane import HERE, MetadataPlane, metadata_plane

OTHER = BrokerInfo(2, "b2", 9092)
AUTOMATIC = {"qbus.queue.idle.ms": "300000"}


class World:
    """A controller, and the votes of two brokers that lead a partition each."""

    def __init__(self, plane: MetadataPlane) -> None:
        self.plane = plane
        self.sweeper = IdleQueueSweep(plane.store, plane.metadata, plane.controller)

    async def create(self, *names: str, config: dict[str, str] | None = None) -> None:
        """Queues with a partition on each broker."""
        settings: dict[str, str | None] = dict(AUTOMATIC if config is None else config)
        topics = [NewTopic(name, assignment={0: [1], 1: [2]}, config=settings) for name in names]
        outcomes = await self.plane.controller.create_topics(topics)
        assert all(isinstance(outcome, TopicPlan) for outcome in outcomes)
        await self.plane.metadata.catch_up()

    def topic(self, name: str = "q") -> Topic:
        return self.plane.metadata.topics[name]

    async def vote(self, broker: int, *names: str, epoch_of: int | None = None) -> None:
        """Store the votes of a broker for its partition of each queue."""
        epoch = self.plane.metadata.brokers[broker].epoch if epoch_of is None else epoch_of
        votes = [
            IdleVote(topic.id, index, info.leader_epoch)
            for topic in map(self.topic, names)
            for index, info in enumerate(topic.partitions)
            if info.leader == broker
        ]
        data = IdleQueuesNode(epoch, tuple(votes)).encode()
        path = IdleQueuesNode.path(broker)
        known = await self.plane.store.get(path)
        write = Create(path, data, ephemeral=True) if known is None else Set(path, data)
        await self.plane.store.transaction([write])

    async def sweep(self) -> set[str]:
        """Sweep once; the topics that are left."""
        await self.sweeper.sweep()
        return set(self.plane.metadata.topics)

    def before_deletion(self, monkeypatch: pytest.MonkeyPatch, *operations: Any) -> None:
        """Have another broker write when the votes are read, before anything is deleted."""
        read = self.plane.store.get_many

        async def read_then_write(paths: Any) -> Any:
            found = await read(paths)
            monkeypatch.undo()
            await self.plane.store.transaction(list(operations))
            return found

        monkeypatch.setattr(self.plane.store, "get_many", read_then_write)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with metadata_plane(tmp_path, others=(OTHER,)) as plane:
        yield World(plane)


async def test_one_that_all_leaders_voted_for_goes(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create("q", "used")
    await world.vote(1, "q", "used")
    await world.vote(2, "q")
    with caplog.at_level("INFO"):
        assert await world.sweep() == {"used"}
    assert world.sweeper.deleted == 1
    (line,) = [one for one in caplog.messages if "idle queues" in one]
    assert line == "deleted 1 idle queues without jobs (qbus.queue.idle.ms): q"
    assert not await world.plane.store.tree(TopicNode.path("q"))
    assert await world.plane.store.get(ConfigNode.topic_path("q")) is None


async def test_of_many_one_line_names_some(world: World, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"reply-{number}" for number in range(60)]
    await world.create(*names)
    await world.vote(1, *names)
    await world.vote(2, *names)
    with caplog.at_level("INFO"):
        assert await world.sweep() == set()
    (line,) = [one for one in caplog.messages if "idle queues" in one]
    assert line.startswith("deleted 60 idle queues")
    assert line.endswith("and 55 more")


async def test_one_leader_is_not_enough(world: World) -> None:
    await world.create("q")
    await world.vote(1, "q")
    assert await world.sweep() == {"q"}


async def test_another_controller_deletes_what_the_first_did_not(world: World) -> None:
    """Votes are in the store, not in the controller."""
    await world.create("q")
    await world.vote(1, "q")
    await world.vote(2, "q")
    world.sweeper = IdleQueueSweep(world.plane.store, world.plane.metadata, world.plane.controller)
    assert await world.sweep() == set()


async def test_who_is_not_the_controller_deletes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("q")
    await world.vote(1, "q")
    await world.vote(2, "q")
    monkeypatch.setattr(type(world.plane.controller), "is_active", False)
    assert await world.sweep() == {"q"}


class TestWhatIsKept:
    async def test_queues_that_were_created(self, world: World) -> None:
        await world.create("q", config={})
        await world.vote(1, "q")
        await world.vote(2, "q")
        assert await world.sweep() == {"q"}

    async def test_paused_ones(self, world: World) -> None:
        await world.create("q", config={**AUTOMATIC, "qbus.queue.pause": "in"})
        await world.vote(1, "q")
        await world.vote(2, "q")
        assert await world.sweep() == {"q"}

    @pytest.mark.parametrize(
        "key", ["qbus.queue.dead.letter.topic", "qbus.delay.dead.letter.topic"]
    )
    async def test_dead_letter_topics_of_others(self, world: World, key: str) -> None:
        await world.create("q", "other")
        await world.create("named", config={key: "q"})
        await world.vote(1, "q", "other")
        await world.vote(2, "q", "other")
        assert await world.sweep() == {"q", "named"}

    async def test_dead_letter_topics_of_share_groups(self, world: World) -> None:
        await world.create("q")
        group = ConfigNode({"errors.deadletterqueue.topic.name": "q"})
        change = ChangeNode(groups=("workers",))
        await world.plane.store.transaction(
            [Create(ConfigNode.group_path("workers"), group.encode()), announce(change.encode())]
        )
        await world.plane.metadata.catch_up()
        await world.vote(1, "q")
        await world.vote(2, "q")
        assert await world.sweep() == {"q"}

    async def test_what_a_former_run_of_a_broker_voted_for(self, world: World) -> None:
        await world.create("q")
        await world.vote(1, "q")
        await world.vote(2, "q", epoch_of=99)
        assert await world.sweep() == {"q"}


class TestWhatChangesMeanwhile:
    @pytest.fixture(autouse=True)
    async def voted(self, world: World) -> None:
        await world.create("q")
        await world.vote(1, "q")
        await world.vote(2, "q")

    async def test_a_vote_that_is_taken_back(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The leader appends once its vote is gone: the deletion must not come after that."""
        node = IdleQueuesNode(world.plane.metadata.brokers[2].epoch)
        world.before_deletion(monkeypatch, Set(IdleQueuesNode.path(2), node.encode()))
        assert await world.sweep() == {"q"}

    async def test_a_session_that_ends(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.before_deletion(monkeypatch, Delete(IdleQueuesNode.path(2)))
        assert await world.sweep() == {"q"}

    async def test_a_broker_that_restarts(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its new node has the version of the old one, and may have other votes."""
        epoch = BrokerEpochNode.path(2)
        data = IdleQueuesNode(world.plane.metadata.brokers[2].epoch + 1).encode()
        path = IdleQueuesNode.path(2)
        world.before_deletion(
            monkeypatch, Set(epoch, b"{}"), Delete(path), Create(path, data, ephemeral=True)
        )
        assert await world.sweep() == {"q"}

    async def test_another_leader(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """It may have appended: its predecessor is dead, and so is the vote."""
        state = PartitionStateNode(1, 1, (1,), 1)
        world.before_deletion(monkeypatch, Set(PartitionStateNode.path("q", 1), state.encode()))
        assert await world.sweep() == {"q"}

    async def test_a_configuration(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        node = ConfigNode({"qbus.queue.idle.ms": "-1"})
        world.before_deletion(monkeypatch, Set(ConfigNode.topic_path("q"), node.encode()))
        assert await world.sweep() == {"q"}

    async def test_more_partitions(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        topic = TopicNode(world.topic().id, {0: (1,), 1: (2,), 2: (1,)}, has_identity=True)
        world.before_deletion(monkeypatch, Set(TopicNode.path("q"), topic.encode()))
        assert await world.sweep() == {"q"}


async def test_a_store_that_cannot_be_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("q")
    await world.vote(1, "q")
    await world.vote(2, "q")

    async def fail(_: object) -> Any:
        raise StoreUnavailable("no")

    monkeypatch.setattr(world.plane.store, "children", fail)
    assert await world.sweep() == {"q"}
    monkeypatch.undo()
    assert await world.sweep() == set()


async def test_votes_that_cannot_be_read_are_no_votes(world: World) -> None:
    await world.create("q")
    await world.vote(2, "q")
    path = IdleQueuesNode.path(HERE.id)
    await world.plane.store.transaction([Create(path, b'{"idle":[["x"]]}', ephemeral=True)])
    await asyncio.sleep(0)
    assert await world.sweep() == {"q"}
