"""The metadata cache: loading, changes, and events for subscribers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qbus.broker.metadata.cache import JOBS_GROUP, NO_CONTROLLER, MetadataCache
from qbus.broker.metadata.image import (
    BrokerConfigChanged,
    BrokerInfo,
    BrokersChanged,
    Event,
    GroupConfigChanged,
    PartitionsChanged,
    Topic,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    UserConfigChanged,
)
from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import (
    Check,
    Create,
    Delete,
    EmbeddedStore,
    MetadataStore,
    Node,
    Op,
    Set,
    StoreUnavailable,
)
from qbus.metadata.feed import announce, decide, newest, prune
from qbus.metadata.znodes import (
    ALL_BROKERS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerNode,
    ChangeNode,
    ConfigNode,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
)
from tests.support.waiting import eventually


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        yield store


@pytest.fixture
async def cache(store: MetadataStore) -> AsyncIterator[MetadataCache]:
    cache = MetadataCache(store, BrokerConfig())
    await cache.start()
    yield cache
    await cache.close()


class Listener:
    """Records events."""

    def __init__(self, cache: MetadataCache) -> None:
        self.events: list[Event] = []
        self.batches = 0
        cache.subscribe(self.told)

    def told(self, events: Sequence[Event]) -> None:
        self.events += events
        self.batches += 1

    def take(self) -> list[Event]:
        events, self.events = self.events, []
        return events


def topic_ops(name: str, topic_id: bytes = b"1" * 16, partitions: int = 1) -> list[Op]:
    state = PartitionStateNode(1, 0, (1,), 1).encode()
    node = TopicNode(topic_id, dict.fromkeys(range(partitions), (1,)))
    return [
        Create(TopicNode.path(name), node.encode()),
        *(Create(PartitionStateNode.path(name, index), state) for index in range(partitions)),
    ]


def delete_ops(name: str, partitions: int = 1) -> list[Op]:
    paths = [PartitionStateNode.path(name, index) for index in range(partitions)]
    below = [path.removesuffix("/state") for path in paths]
    return [
        Delete(one)
        for one in (*paths, *below, f"{TopicNode.path(name)}/partitions", TopicNode.path(name))
    ]


async def change(store: MetadataStore, node: ChangeNode, *ops: Op) -> int:
    return await decide(store, [], ops, node)


async def made(store: MetadataStore, cache: MetadataCache, node: ChangeNode, *ops: Op) -> None:
    await cache.applied(await change(store, node, *ops))


async def test_knows_everything_that_is_there_at_the_start(store: MetadataStore) -> None:
    await store.transaction(
        [
            *topic_ops("t", b"1" * 16, 2),
            Create(ConfigNode.topic_path("t"), ConfigNode({"flush.ms": "7"}).encode()),
            Create(BrokerNode.path(1), BrokerNode("h", 1, 0, "r").encode(), ephemeral=True),
            Create(CONTROLLER, ControllerNode(1).encode(), ephemeral=True),
            Create(ConfigNode.broker_path("1"), ConfigNode({"log.roll.ms": "9"}).encode()),
            Create(
                ConfigNode.broker_path(ALL_BROKERS), ConfigNode({"num.partitions": "5"}).encode()
            ),
        ]
    )
    config = BrokerConfig()
    cache = MetadataCache(store, config)
    assert cache.controller_id == NO_CONTROLLER
    listener = Listener(cache)
    await cache.start()
    topic = cache.topics["t"]
    assert cache.topics_by_id == {b"1" * 16: topic}
    assert [partition.leader for partition in topic.partitions] == [1, 1]
    assert cache.brokers == {1: BrokerInfo(1, "h", 1, "r", 0)}
    assert cache.controller_id == 1
    assert config.num_partitions == 5
    settings = cache.topic_config(topic)
    assert (settings.flush_ms, settings.segment_ms) == (7, 9)
    assert listener.take() == [BrokersChanged(), BrokerConfigChanged(), TopicCreated(topic)]
    await cache.close()


async def test_follows_what_happens_to_a_topic(store: MetadataStore, cache: MetadataCache) -> None:
    listener = Listener(cache)
    topics: list[Topic] = []

    async def see(node: ChangeNode, *ops: Op) -> list[Event]:
        await made(store, cache, node, *ops)
        if "t" in cache.topics:
            topics.append(cache.topics["t"])
        return listener.take()

    named = ChangeNode(topics=("t",))
    assert await see(named, *topic_ops("t")) == [TopicCreated(topics[0])]

    assert cache.topic_config(topics[0]).flush_ms == 2**63 - 1
    config = ConfigNode({"flush.ms": "1"}).encode()
    events = await see(ChangeNode(configs=("t",)), Create(ConfigNode.topic_path("t"), config))
    assert events == [TopicConfigChanged(topics[1])]
    assert cache.topic_config(topics[1]).flush_ms == 1

    state = PartitionStateNode(1, 1, (1,), 1).encode()
    events = await see(named, Set(PartitionStateNode.path("t", 0), state))
    assert events == [PartitionsChanged(topics[2], topics[1])]
    assert topics[2].partitions[0].leader_epoch == 1

    gone = [
        Delete(path)
        for path in sorted(await store.tree(TopicNode.path("t")), key=len, reverse=True)
    ]
    events = await see(named, *gone, Delete(ConfigNode.topic_path("t")))
    assert events == [TopicDeleted(topics[2])]
    assert cache.topics == {}
    assert cache.topics_by_id == {}
    assert cache.colliding("t") is None


async def test_a_topic_that_was_created_again_is_another_one(
    store: MetadataStore, cache: MetadataCache
) -> None:
    await made(store, cache, ChangeNode(topics=("t",)), *topic_ops("t"))
    before = cache.topics["t"]
    listener = Listener(cache)
    gone = [
        Delete(path)
        for path in sorted(await store.tree(TopicNode.path("t")), key=len, reverse=True)
    ]
    await made(store, cache, ChangeNode(topics=("t",)), *gone, *topic_ops("t", b"2" * 16))
    after = cache.topics["t"]
    assert listener.take() == [TopicDeleted(before), TopicCreated(after)]
    assert cache.topics_by_id == {b"2" * 16: after}


async def test_follows_brokers_and_the_controller(
    store: MetadataStore, cache: MetadataCache
) -> None:
    listener = Listener(cache)
    await made(
        store,
        cache,
        ChangeNode(cluster=True),
        Create(BrokerNode.path(7), BrokerNode("h", 1, 3).encode()),
        Create(CONTROLLER, ControllerNode(7).encode()),
    )
    assert cache.brokers == {7: BrokerInfo(7, "h", 1, None, 3)}
    assert cache.controller_id == 7
    assert listener.take() == [BrokersChanged()]
    await made(
        store,
        cache,
        ChangeNode(cluster=True),
        Delete(BrokerNode.path(7)),
        Delete(CONTROLLER),
    )
    assert cache.brokers == {}
    assert cache.controller_id == NO_CONTROLLER


async def test_a_brokers_configuration_reaches_every_topic(store: MetadataStore) -> None:
    config = BrokerConfig()
    cache = MetadataCache(store, config)
    await cache.start()
    await made(store, cache, ChangeNode(topics=("t",)), *topic_ops("t"))
    topic = cache.topics["t"]
    assert cache.topic_config(topic) is cache.topic_config(topic)
    listener = Listener(cache)
    for broker, value in ((ALL_BROKERS, "5"), ("1", "6")):
        node = ConfigNode({"log.retention.ms": value}).encode()
        path = ConfigNode.broker_path(broker)
        await made(store, cache, ChangeNode(brokers=(broker,)), Create(path, node))
        assert config.log_retention_ms == int(value)
        assert cache.topic_config(topic).retention_ms == int(value)
        assert listener.take() == [BrokerConfigChanged()]


async def test_a_share_groups_configuration_is_followed(store: MetadataStore) -> None:
    cache = MetadataCache(store, BrokerConfig())
    path = ConfigNode.group_path("a/b")
    await store.transaction([Create(path, ConfigNode({"qbus.filter": "any:x"}).encode())])
    await cache.start()
    assert cache.group_config("a/b").qbus_filter == "any:x"
    listener = Listener(cache)
    for own, expected in (({"qbus.filter": "any:y"}, "any:y"), ({}, "")):
        node = ConfigNode(own).encode()
        await made(store, cache, ChangeNode(groups=("a/b",)), Set(path, node))
        assert cache.group_config("a/b").qbus_filter == expected
        assert listener.take() == [GroupConfigChanged("a/b")]
    await made(store, cache, ChangeNode(groups=("a/b",)), Delete(path))
    assert "a/b" not in cache.group_configs


async def test_users_are_followed(store: MetadataStore) -> None:
    cache = MetadataCache(store, BrokerConfig())
    path = ConfigNode.user_path("al/ice")
    await store.transaction([Create(path, ConfigNode({"SCRAM-SHA-256": "one"}).encode())])
    listener = Listener(cache)
    await cache.start()
    assert cache.users == {"al/ice": {"SCRAM-SHA-256": "one"}}
    assert UserConfigChanged("al/ice") in listener.take()
    change = ChangeNode(users=("al/ice",))
    await made(store, cache, change, Set(path, ConfigNode({"SCRAM-SHA-256": "two"}).encode()))
    assert cache.users == {"al/ice": {"SCRAM-SHA-256": "two"}}
    assert listener.take() == [UserConfigChanged("al/ice")]
    await made(store, cache, change, Set(path, ConfigNode({}).encode()))
    assert cache.users == {}
    assert listener.take() == [UserConfigChanged("al/ice")]


async def test_a_user_that_cannot_be_read_has_no_credentials_and_is_not_shown(
    store: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    cache = MetadataCache(store, BrokerConfig())
    await cache.start()
    path = ConfigNode.user_path("alice")
    change = ChangeNode(users=("alice",))
    await made(store, cache, change, Create(path, b'{"config":{"SCRAM-SHA-256":"hidden words"}'))
    assert cache.users == {}
    assert "cannot be read" in caplog.text
    assert "hidden words" not in caplog.text


async def test_a_brokers_configuration_reaches_every_share_group(store: MetadataStore) -> None:
    cache = MetadataCache(store, BrokerConfig())
    await cache.start()
    assert cache.group_config("g") is cache.group_config("h")
    assert cache.group_config("g").share_delivery_count_limit == 5
    node = ConfigNode({"group.share.delivery.count.limit": "7"}).encode()
    change_of_1 = ChangeNode(brokers=("1",))
    await made(store, cache, change_of_1, Create(ConfigNode.broker_path("1"), node))
    assert cache.group_config("g").share_delivery_count_limit == 7


async def test_the_group_of_jobs_has_defaults_of_its_own(store: MetadataStore) -> None:
    cache = MetadataCache(store, BrokerConfig())
    await cache.start()
    config = cache.group_config(JOBS_GROUP)
    assert config.share_auto_offset_reset == "earliest"
    assert config.share_delivery_count_limit == 0
    path = ConfigNode.group_path(JOBS_GROUP)
    own = ConfigNode({"share.delivery.count.limit": "9"}).encode()
    await made(store, cache, ChangeNode(groups=(JOBS_GROUP,)), Create(path, own))
    config = cache.group_config(JOBS_GROUP)
    assert (config.share_delivery_count_limit, config.share_auto_offset_reset) == (9, "earliest")


async def test_says_which_topic_a_name_collides_with(
    store: MetadataStore, cache: MetadataCache
) -> None:
    await made(store, cache, ChangeNode(topics=("a.b",)), *topic_ops("a.b"))
    assert cache.colliding("a_b") == cache.colliding("a.b") == "a.b"
    assert cache.colliding("a-b") is None


async def test_subscribers_are_done_before_a_change_counts_as_applied(
    store: MetadataStore, cache: MetadataCache
) -> None:
    done: list[str] = []

    async def slow(_: Sequence[Event]) -> None:
        await asyncio.sleep(0.01)
        done.append("slow")

    def failing(_: Sequence[Event]) -> None:
        raise RuntimeError("whatever")

    cache.subscribe(failing)
    cache.subscribe(slow)
    sequence = await change(store, ChangeNode(topics=("t",)), *topic_ops("t"))
    assert not done
    await cache.applied(sequence)
    assert done == ["slow"]
    await cache.applied(sequence)
    await cache.applied(sequence - 1)


async def test_those_that_must_not_wait_for_others_are_told_first_in_their_order(
    store: MetadataStore, cache: MetadataCache
) -> None:
    told: list[str] = []
    go_on = asyncio.Event()

    async def slow(_: Sequence[Event]) -> None:
        told.append("slow")
        await go_on.wait()

    cache.subscribe(slow)
    cache.subscribe(lambda _: told.append("first"), is_first=True)
    cache.subscribe(lambda _: told.append("second"), is_first=True)
    sequence = await change(store, ChangeNode(topics=("t",)), *topic_ops("t"))
    await eventually(lambda: told == ["first", "second", "slow"])
    cache.subscribe(lambda _: told.append("later"), is_first=True)
    go_on.set()
    await cache.applied(sequence)
    assert told == ["first", "second", "slow"], "each of them once"


async def test_many_changes_are_taken_together(store: MetadataStore, cache: MetadataCache) -> None:
    listener = Listener(cache)
    sequences = await asyncio.gather(
        *(
            change(store, ChangeNode(topics=(f"t{i}",)), *topic_ops(f"t{i}", b"%016d" % i))
            for i in range(300)
        )
    )
    await cache.applied(max(sequences))
    assert len(cache.topics) == 300
    assert len(listener.events) == 300
    assert listener.batches < 50


async def test_a_cache_that_missed_changes_reads_everything_again(
    store: MetadataStore, cache: MetadataCache, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes come and are pruned while a subscriber is busy."""
    go_on = asyncio.Event()

    async def wait(_: Sequence[Event]) -> None:
        await go_on.wait()

    await made(store, cache, ChangeNode(topics=("gone",)), *topic_ops("gone", b"0" * 16))
    cache.subscribe(wait)
    listener = Listener(cache)
    await change(store, ChangeNode(topics=("a",)), *topic_ops("a", b"1" * 16))
    await asyncio.sleep(0.05)
    await change(store, ChangeNode(topics=("b",)), *topic_ops("b", b"2" * 16))
    gone = [
        Delete(path)
        for path in sorted(await store.tree(TopicNode.path("gone")), key=len, reverse=True)
    ]
    last = await change(store, ChangeNode(topics=("gone",)), *gone)
    await prune(store, keep=1)
    go_on.set()
    await cache.applied(last)
    assert cache.topics.keys() == {"a", "b"}
    told = {type(event): event.topic.name for event in listener.events if hasattr(event, "topic")}
    assert told[TopicDeleted] == "gone"
    assert "missed changes" in caplog.text


@pytest.mark.parametrize(
    "ops",
    [
        [Create(TopicNode.path("bad"), b"?")],
        [Create(ConfigNode.broker_path("1"), b"?")],
        [Create(BrokerNode.path(5), b"?")],
        [Create("/brokers/ids/no-number", BrokerNode("h", 1, 0).encode())],
        [Create(CONTROLLER, b"?")],
        [announce(b"?")],
        [announce(b"")],
    ],
    ids=repr,
)
async def test_malformed_nodes_are_logged_and_ignored(
    store: MetadataStore, cache: MetadataCache, ops: list[Op], caplog: pytest.LogCaptureFixture
) -> None:
    everything = ChangeNode(topics=("bad", "t"), brokers=("1",), cluster=True)
    await made(store, cache, everything, *ops, *topic_ops("t"))
    assert cache.topics.keys() == {"t"}
    assert "cannot be read" in caplog.text
    again = MetadataCache(store, BrokerConfig())
    await again.start()
    assert again.topics.keys() == {"t"}
    await again.close()


async def test_a_known_topic_that_cannot_be_read_any_more_stays(
    store: MetadataStore, cache: MetadataCache
) -> None:
    named = ChangeNode(topics=("t",))
    await made(store, cache, named, *topic_ops("t"))
    await made(store, cache, named, Set(TopicNode.path("t"), b"?"))
    assert len(cache.topics["t"].partitions) == 1


async def test_waiters_fail_when_the_session_ends(
    store: MetadataStore, cache: MetadataCache, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    waiting = asyncio.ensure_future(cache.applied(10_000))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable):
        await cache.applied(10_000)
    assert "the metadata cache stops" in caplog.text


@pytest.mark.parametrize(
    "failure", [StoreUnavailable("the disk is full"), RuntimeError("whatever")], ids=repr
)
async def test_a_failure_while_the_session_lasts_is_survived(
    store: MetadataStore,
    failure: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = MetadataCache(store, BrokerConfig(), retry_s=0.01)
    await cache.start()
    before = await change(store, ChangeNode(topics=("a",)), *topic_ops("a"))
    await cache.applied(before)
    get_many, failing = EmbeddedStore.get_many, [failure]

    async def fail_once(self: EmbeddedStore, wanted: Sequence[str]) -> dict[str, Node]:
        if failing:
            raise failing.pop()
        return await get_many(self, wanted)

    monkeypatch.setattr(EmbeddedStore, "get_many", fail_once)
    sequence = await change(store, ChangeNode(topics=("t",)), *topic_ops("t", b"2" * 16))
    await asyncio.wait_for(cache.applied(sequence), 10)
    assert cache.topics.keys() == {"a", "t"}
    assert str(failure) in caplog.text
    last = await change(store, ChangeNode(topics=("u",)), *topic_ops("u", b"3" * 16))
    await asyncio.wait_for(cache.applied(last), 10)
    await cache.close()


async def test_subscribers_hear_of_a_removed_user_however_often_the_store_fails_meanwhile(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = MetadataCache(store, BrokerConfig(), retry_s=0.01)
    path = ConfigNode.user_path("mallory")
    await store.transaction([Create(path, ConfigNode({"SCRAM-SHA-256": "one"}).encode())])
    await cache.start()
    listener = Listener(cache)
    get_many, failures = EmbeddedStore.get_many, 0

    async def fail_behind_the_user(self: EmbeddedStore, wanted: Sequence[str]) -> dict[str, Node]:
        nonlocal failures
        if path not in wanted and failures < 6:
            failures += 1
            raise StoreUnavailable("not now")
        return await get_many(self, wanted)

    monkeypatch.setattr(EmbeddedStore, "get_many", fail_behind_the_user)
    change_of_both = ChangeNode(topics=("t",), users=("mallory",))  # the topic is read behind it
    await change(store, change_of_both, Delete(path), *topic_ops("t"))
    await eventually(lambda: "t" in cache.topics)
    assert failures == 6
    assert cache.users == {}
    assert UserConfigChanged("mallory") in listener.take()
    await cache.close()


async def test_waiters_fail_when_the_store_keeps_failing(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = MetadataCache(store, BrokerConfig(), retry_s=0.01)
    await cache.start()

    async def fail(_: EmbeddedStore, wanted: object) -> dict[str, Node]:
        raise RuntimeError(wanted)

    monkeypatch.setattr(EmbeddedStore, "tree", fail)
    monkeypatch.setattr(EmbeddedStore, "get_many", fail)
    sequence = await change(store, ChangeNode(topics=("t",)), *topic_ops("t"))
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await asyncio.wait_for(cache.applied(sequence), 10)
    monkeypatch.undo()
    await eventually(lambda: "t" in cache.topics)
    await cache.close()


async def test_closing_lets_nobody_wait(store: MetadataStore, cache: MetadataCache) -> None:
    waiting = asyncio.ensure_future(cache.applied(10_000))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    await cache.applied(await newest(store))


async def test_loads_a_thousand_topics(store: MetadataStore) -> None:
    ops = [op for i in range(1000) for op in topic_ops(f"t{i}", b"%016d" % i, 3)]
    await store.transaction(ops)
    cache = MetadataCache(store, BrokerConfig())
    await cache.start()
    assert len(cache.topics) == len(cache.topics_by_id) == 1000
    assert sum(len(topic.partitions) for topic in cache.topics.values()) == 3000
    await cache.close()


def test_what_it_knows_can_only_be_read(tmp_path: Path) -> None:
    cache = MetadataCache(EmbeddedStore(tmp_path / "m.db"), BrokerConfig())
    with pytest.raises(TypeError):
        cache.topics["t"] = Topic("t", b"", ())  # type: ignore[index]


# States, brokers and controllers


async def test_a_changed_state_is_read_without_the_rest_of_its_topic(
    store: MetadataStore, cache: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(store, cache, ChangeNode(topics=("t",)), *topic_ops("t", partitions=3))
    listener = Listener(cache)
    asked: list[str] = []
    get_many = EmbeddedStore.get_many

    async def noting(self: EmbeddedStore, wanted: Sequence[str]) -> dict[str, Node]:
        asked.extend(wanted)
        return await get_many(self, wanted)

    monkeypatch.setattr(EmbeddedStore, "get_many", noting)
    path = PartitionStateNode.path("t", 1)
    state = PartitionStateNode(2, 1, (2,), 1)
    await made(store, cache, ChangeNode(states={"t": (1,)}), Set(path, state.encode()))
    assert asked == [TopicNode.path("t"), path]
    assert [one.leader for one in cache.topics["t"].partitions] == [1, 2, 1]
    assert cache.topics_by_id[b"1" * 16] is cache.topics["t"]
    (event,) = listener.take()
    assert isinstance(event, PartitionsChanged)
    assert event.before.partitions[1].leader == 1


@pytest.mark.parametrize("index", [0, 7, -1])
async def test_a_changed_topic_is_read_whole_despite_a_state_change(
    store: MetadataStore, cache: MetadataCache, index: int
) -> None:
    """The topic was deleted and created again, and only the second change is announced."""
    await made(store, cache, ChangeNode(topics=("t",)), *topic_ops("t"))
    await store.transaction(delete_ops("t"))
    states = ChangeNode(states={"t": (index,)})
    await made(store, cache, states, *topic_ops("t", b"2" * 16, 2))
    assert cache.topics["t"].id == b"2" * 16
    assert len(cache.topics["t"].partitions) == 2
    await store.transaction(delete_ops("t", 2))
    await made(store, cache, ChangeNode(states={"t": (0,)}))
    assert "t" not in cache.topics


async def test_the_end_of_a_session_is_noticed_without_a_change(
    store: MetadataStore, cache: MetadataCache
) -> None:
    ops: list[Op] = [
        Create(BrokerNode.path(7), BrokerNode("b", 1, 3).encode()),
        Create(CONTROLLER, ControllerNode(7, 0, 3).encode()),
        Create(CONTROLLER_EPOCH, b"4"),
    ]
    await made(store, cache, ChangeNode(cluster=True), *ops)
    await eventually(lambda: cache.controller_id == 7)
    listener = Listener(cache)
    assert (cache.controller_id, cache.is_live(7, 3), cache.is_live(7, 2)) == (7, True, False)
    assert cache.fence() == Check(CONTROLLER_EPOCH, 0)
    await store.transaction([Delete(CONTROLLER)])
    await eventually(lambda: cache.controller_id == NO_CONTROLLER)
    await eventually(lambda: listener.take() == [BrokersChanged()])
    await store.transaction([Delete(BrokerNode.path(7))])
    await eventually(lambda: not cache.brokers)
    await eventually(lambda: listener.take() == [BrokersChanged()])
    await store.transaction([Create(BrokerNode.path(7), BrokerNode("b", 1, 4).encode())])
    await eventually(lambda: cache.is_live(7, 4))


async def test_before_the_first_controller_nothing_can_be_decided(cache: MetadataCache) -> None:
    with pytest.raises(ApiError) as refused:
        cache.fence()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
