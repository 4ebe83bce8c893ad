"""Changes of topics tell all: a cache that follows them knows what one that reads would know."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qbus.broker.controller import ConfigChange, Controller, Growth, NewTopic, Reassignment
from qbus.broker.metadata.cache import MetadataCache
from qbus.broker.metadata.image import (
    BrokerInfo,
    PartitionInfo,
    Topic,
    changed_topic,
    follows,
)
from qbus.config import BrokerConfig
from qbus.metadata import Create, Delete, EmbeddedStore, Node, Set
from qbus.metadata.feed import announce, decide, newest
from qbus.metadata.znodes import (
    DELETED,
    ChangeNode,
    ConfigNode,
    PartitionStateNode,
    TopicChange,
    TopicNode,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

OTHERS = (BrokerInfo(2, "two", 9092), BrokerInfo(3, "three", 9092))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        yield plane


@pytest.fixture
def read(plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes below topics that are read from here on."""
    found: list[str] = []
    get_many = EmbeddedStore.get_many

    async def noting(self: EmbeddedStore, wanted: Sequence[str]) -> dict[str, Node]:
        found.extend(path for path in wanted if path.startswith("/brokers/topics/"))
        return await get_many(self, wanted)

    monkeypatch.setattr(EmbeddedStore, "get_many", noting)
    return found


async def stored(plane: MetadataPlane) -> Mapping[str, Topic]:
    """The topics as a broker that starts now reads them."""
    cache = MetadataCache(plane.store, BrokerConfig())
    await cache.start()
    await cache.close()
    return dict(cache.topics)


async def create(plane: MetadataPlane, *names: str) -> None:
    config = {"flush.ms": "7"}
    wanted = [NewTopic(name, 3, 3, config=config if name == "b" else {}) for name in names]
    assert all(hasattr(plan, "topic_id") for plan in await plane.controller.create_topics(wanted))


async def test_what_is_created_grows_and_is_deleted_is_not_read(
    plane: MetadataPlane, read: list[str]
) -> None:
    await create(plane, "a", "b", "c")
    assert await plane.controller.create_partitions([Growth("a", 5), Growth("b", 4)]) == [None] * 2
    assert await plane.controller.create_partitions([Growth("a", 6, [[3, 1, 2]])]) == [None]
    assert isinstance((await plane.controller.delete_topics(["c"]))[0], Topic)
    assert read == []
    known = dict(plane.metadata.topics)
    assert {name: len(topic.partitions) for name, topic in known.items()} == {"a": 6, "b": 4}
    assert known["a"].partitions[5] == PartitionInfo(3, 0, (3, 1, 2), (3, 1, 2))
    assert known["b"].config == {"flush.ms": "7"}
    assert known == await stored(plane)


async def test_what_comes_in_one_go_is_read(plane: MetadataPlane) -> None:
    """A broker that was slow sees that one name stands for two topics, and what became of it."""
    late = MetadataCache(plane.store, BrokerConfig())
    await late.start()
    async with late._changing:  # it sees all of this at once
        await create(plane, "a", "b")
        await plane.controller.delete_topics(["a"])
        await create(plane, "a")
        await plane.controller.create_partitions([Growth("b", 4)])
    await late.applied(await newest(plane.store))
    assert dict(late.topics) == dict(plane.metadata.topics) == await stored(plane)
    await late.close()


async def test_a_name_that_collides_with_one_that_is_gone_stays_known(plane: MetadataPlane) -> None:
    """What is read is taken in after what is told, though it happened before."""
    await create(plane, "a.b")
    late = MetadataCache(plane.store, BrokerConfig())
    await late.start()
    async with late._changing:
        await decide(plane.store, [], [], ChangeNode(topics=("x",)))
        await asyncio.sleep(0.05)  # it has this, and sees what follows at once
        await plane.controller.create_partitions([Growth("a.b", 4)])
        await plane.controller.delete_topics(["a.b"])
        await create(plane, "a_b")
    await late.applied(await newest(plane.store))
    assert late.colliding("a.b") == "a_b"
    await late.close()


async def test_a_topic_that_others_changed_is_read(plane: MetadataPlane, read: list[str]) -> None:
    await create(plane, "a")
    await plane.controller.reassign([Reassignment("a", {0: [2, 3, 1]})])
    del read[:]
    await plane.controller.create_partitions([Growth("a", 4)])
    assert dict(plane.metadata.topics) == await stored(plane)
    await create(plane, "b")
    state = PartitionStateNode(2, 1, (2,), 1)
    await plane.metadata.applied(
        await decide(
            plane.store,
            [],
            [Set(PartitionStateNode.path("b", 1), state.encode())],
            ChangeNode(states={"b": (1,)}),
        )
    )
    assert plane.metadata.topics["b"].partitions[1].leader == 2
    await plane.controller.create_partitions([Growth("b", 4)])
    assert plane.metadata.topics["b"].partitions[1].isr == (2,)
    assert dict(plane.metadata.topics) == await stored(plane)


async def test_a_change_that_does_not_fit_is_no_authority(
    plane: MetadataPlane, read: list[str]
) -> None:
    """Of another topic of that name, of another version: what the store has counts."""
    await create(plane, "a")
    known = plane.metadata.topics["a"]
    for detail in (
        TopicChange(bytes(16), DELETED),
        TopicChange(bytes(16), 0, 0, ((1,),)),
        TopicChange(known.id, 7, 3, ((1,),)),
        TopicChange(known.id, 1, 7, ((1,),)),
    ):
        del read[:]
        change = ChangeNode(topics=("a",), details={"a": detail})
        await plane.metadata.applied(await decide(plane.store, [], [], change))
        assert read
        assert plane.metadata.topics["a"] == known


async def test_partitions_that_somebody_left_nodes_of_can_be_added(plane: MetadataPlane) -> None:
    """They are taken for missing at first."""
    await create(plane, "a")
    left = f"{TopicNode.path('a')}/partitions/3"
    await plane.store.transaction([Create(left)])
    assert await plane.controller.create_partitions([Growth("a", 5)]) == [None]
    assert dict(plane.metadata.topics) == await stored(plane)
    assert len(plane.metadata.topics["a"].partitions) == 5


async def test_a_deletion_takes_what_others_left_below(plane: MetadataPlane) -> None:
    await create(plane, "a")
    await plane.store.transaction([Create(f"{TopicNode.path('a')}/theirs/leaf")])
    assert isinstance((await plane.controller.delete_topics(["a"]))[0], Topic)
    assert await plane.store.tree(TopicNode.path("a")) == {}


async def test_a_deletion_takes_a_configuration_that_it_has_not_heard_of(
    plane: MetadataPlane,
) -> None:
    """Else the next topic of that name would have it, or could not be created with its own."""
    await create(plane, "a")
    late = MetadataCache(plane.store, BrokerConfig())
    await late.start()
    other = Controller(plane.store, late, BrokerConfig(), plane.clock)
    change = ConfigChange("a", lambda current: {**current, "flush.ms": "7"})
    async with late._changing:
        assert await plane.controller.alter_topic_configs([change]) == [None]
        deletion = asyncio.create_task(other.delete_topics(["a"]))
        await asyncio.sleep(0.05)
    (deleted,) = await deletion
    assert isinstance(deleted, Topic)
    assert await plane.store.get(ConfigNode.topic_path("a")) is None
    await late.close()


async def test_a_deletion_does_not_take_a_namesake(plane: MetadataPlane) -> None:
    """Whose nodes have the same paths and versions, and which this broker has not heard of."""
    await create(plane, "a")
    old = plane.metadata.topics["a"]
    namesake = TopicNode(b"n" * 16, {0: (1,), 1: (1,), 2: (1,)}, has_identity=True)
    below = sorted((await plane.store.tree(TopicNode.path("a"))), key=len, reverse=True)
    state = PartitionStateNode(1, 0, (1,), 1).encode()
    async with plane.metadata._changing:
        await plane.store.transaction(
            [
                *map(Delete, below),
                Create(TopicNode.path("a"), namesake.encode()),
                Create(TopicNode.identity_path("a", namesake.topic_id)),
                *(Create(PartitionStateNode.path("a", index), state) for index in range(3)),
            ]
        )
    (result,) = await plane.controller.delete_topics(["a"])
    assert isinstance(result, Exception), "it keeps meeting what it does not know"
    root = await plane.store.get(TopicNode.path("a"))
    assert root is not None
    assert TopicNode.decode(root.data).topic_id == namesake.topic_id != old.id


async def test_the_ids_of_deleted_topics_are_known_for_a_while(plane: MetadataPlane) -> None:
    await create(plane, "a", "b", "c")
    gone = {plane.metadata.topics[name].id for name in ("a", "c")}
    await plane.controller.delete_topics(["a", "c"])
    await create(plane, "a")
    await decide(plane.store, [], [], ChangeNode(topics=("x",)))
    await plane.store.transaction([announce(b"nonsense")])
    assert await plane.metadata.deleted_topics() == gone


KNOWN = Topic("t", b"1" * 16, (PartitionInfo(1, 0, (1,), (1,)),), version=2, has_identity=True)


@pytest.mark.parametrize(
    ("change", "known", "expected"),
    [
        (TopicChange(b"1" * 16, DELETED), None, None),
        (TopicChange(b"1" * 16, DELETED), KNOWN, None),
        (
            TopicChange(b"1" * 16, 3, 1, ((2, 1),)),
            KNOWN,
            replace(
                KNOWN,
                version=3,
                partitions=(*KNOWN.partitions, PartitionInfo(2, 0, (2, 1), (2, 1))),
            ),
        ),
        (
            TopicChange(b"2" * 16, 0, 0, ((1,),), {"flush.ms": "1"}),
            None,
            Topic(
                "t",
                b"2" * 16,
                (PartitionInfo(1, 0, (1,), (1,)),),
                {"flush.ms": "1"},
                0,
                0,
                has_identity=True,
            ),
        ),
    ],
)
def test_a_topic_after_a_change(
    change: TopicChange, known: Topic | None, expected: Topic | None
) -> None:
    assert follows(change, known)
    assert changed_topic("t", change, known) == expected


@pytest.mark.parametrize(
    ("change", "known"),
    [
        (TopicChange(b"2" * 16, DELETED), KNOWN),
        (TopicChange(b"1" * 16, 0, 0, ((1,),)), KNOWN),
        (TopicChange(b"1" * 16, 4, 1, ((1,),)), KNOWN),
        (TopicChange(b"1" * 16, 3, 2, ((1,),)), KNOWN),
        (TopicChange(b"2" * 16, 3, 1, ((1,),)), KNOWN),
        (TopicChange(b"1" * 16, 3, 1, ((1,),)), None),
    ],
)
def test_a_change_that_others_preceded_does_not_follow(
    change: TopicChange, known: Topic | None
) -> None:
    assert not follows(change, known)
