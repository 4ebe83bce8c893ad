"""Requests about topics and configuration, from the decision to the metadata cache."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.controller import (
    ConfigChange,
    Controller,
    Edit,
    EditKind,
    Growth,
    NewTopic,
    TopicPlan,
    edit,
)
from qbus.broker.metadata.image import BrokerInfo
from qbus.config import BrokerConfig, Settings, TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, Delete, Op, Result, Set, StoreUnavailable, TransactionTooLarge
from qbus.metadata.feed import PATH, announce
from qbus.metadata.znodes import (
    ALL_BROKERS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ChangeNode,
    ConfigNode,
    PartitionStateNode,
    TopicNode,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane
from tests.support.waiting import eventually

OTHERS = (BrokerInfo(2, "b2", 9092), BrokerInfo(3, "b3", 9092))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        yield plane


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        yield plane


async def create(plane: MetadataPlane, *topics: NewTopic) -> list[TopicPlan | ApiError]:
    return await plane.controller.create_topics(topics)


def code(outcome: object) -> ErrorCode:
    return outcome.code if isinstance(outcome, ApiError) else ErrorCode.NONE


def setting(keys: type[Settings], **values: str) -> Callable[[Any], dict[str, str]]:
    edits = [Edit(name.replace("_", "."), EditKind.SET, value) for name, value in values.items()]
    return partial(_edit, keys, edits)


def _edit(keys: type[Settings], edits: list[Edit], current: dict[str, str]) -> dict[str, str]:
    return edit(keys, current, edits)


# Creating


async def test_a_new_topic_is_known_when_it_is_answered(plane: MetadataPlane) -> None:
    (plan,) = await create(plane, NewTopic("t", 3, 1, config={"retention.ms": "5"}))
    assert isinstance(plan, TopicPlan)
    topic = plane.metadata.topics["t"]
    assert topic.id == plan.topic_id
    assert plane.metadata.topics_by_id[topic.id] is topic
    assert [(p.leader, p.leader_epoch, p.replicas, p.isr) for p in topic.partitions] == [
        (1, 0, (1,), (1,))
    ] * 3
    assert topic.config == {"retention.ms": "5"}


async def test_the_store_has_it_as_kafka_would(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t", 1, 1, config={"flush.ms": "5"}))
    nodes = await plane.store.tree("/")
    topic = TopicNode.decode(nodes["/brokers/topics/t"].data)
    assert topic == TopicNode(plane.metadata.topics["t"].id, {0: (1,)}, has_identity=True)
    state = PartitionStateNode.decode(nodes["/brokers/topics/t/partitions/0/state"].data)
    assert state == PartitionStateNode(1, 0, (1,), controller_epoch=1)
    assert ConfigNode.decode(nodes["/config/topics/t"].data).config == {"flush.ms": "5"}


async def test_defaults_are_the_brokers(tmp_path: Path) -> None:
    static = {"num.partitions": "4", "default.replication.factor": "2"}
    async with metadata_plane(tmp_path, static, others=OTHERS) as plane:
        await create(plane, NewTopic("t"))
        topic = plane.metadata.topics["t"]
        assert len(topic.partitions) == 4
        assert {len(partition.replicas) for partition in topic.partitions} == {2}


async def test_an_assignment_is_kept(three: MetadataPlane) -> None:
    await create(three, NewTopic("t", assignment={1: [3, 1], 0: [2, 3]}))
    partitions = three.metadata.topics["t"].partitions
    assert [(p.leader, p.replicas) for p in partitions] == [(2, (2, 3)), (3, (3, 1))]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("exists"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("with_dots"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", assignment={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignment={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", 1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", config={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"cleanup.policy": "shred"}), ErrorCode.INVALID_CONFIG),
    ],
    ids=repr,
)
async def test_a_failed_creation_has_a_reason_and_no_effect(
    three: MetadataPlane, topic: NewTopic, expected: ErrorCode
) -> None:
    await create(three, NewTopic("exists"), NewTopic("with.dots"))
    before = await three.store.tree("/")
    for validate_only in (True, False):
        (outcome,) = await three.controller.create_topics([topic], validate_only=validate_only)
        assert code(outcome) is expected
        assert isinstance(outcome, ApiError)
        assert outcome.message
    assert await three.store.tree("/") == before


async def test_validating_creates_nothing(plane: MetadataPlane) -> None:
    before = await plane.store.tree("/")
    (plan,) = await plane.controller.create_topics([NewTopic("t", 2)], validate_only=True)
    assert isinstance(plan, TopicPlan)
    assert plan.replication_factor == 1
    assert await plane.store.tree("/") == before


async def test_each_topic_stands_for_itself(plane: MetadataPlane) -> None:
    outcomes = await create(plane, NewTopic("a"), NewTopic("b", 0), NewTopic("c"))
    assert [code(outcome) for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]
    assert plane.metadata.topics.keys() == {"a", "c"}


async def test_topics_of_one_request_may_not_collide(plane: MetadataPlane) -> None:
    outcomes = await create(plane, NewTopic("a.b"), NewTopic("a_b"))
    assert [code(outcome) for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


@pytest.mark.parametrize("partitions", [6_000, -1])
async def test_a_request_creates_a_bounded_number_of_partitions(
    plane: MetadataPlane, partitions: int
) -> None:
    plane.config.set_dynamic({"num.partitions": "6000"}, {})
    topics = [NewTopic("a", partitions), NewTopic("b", partitions)]
    outcomes = await plane.controller.create_topics(topics, validate_only=True)
    assert [code(outcome) for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]


async def test_concurrent_creations_of_a_topic_succeed_once(plane: MetadataPlane) -> None:
    outcomes = await asyncio.gather(*(create(plane, NewTopic("t")) for _ in range(20)))
    codes = sorted(code(outcome) for (outcome,) in outcomes)
    assert codes == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 19


async def test_subscribers_are_done_when_the_answer_comes(plane: MetadataPlane) -> None:
    done: list[str] = []

    async def make_logs(events: object) -> None:
        await asyncio.sleep(0.01)
        done.append("logs")

    plane.metadata.subscribe(make_logs)
    await create(plane, NewTopic("t"))
    assert done


# Deleting


async def test_a_deleted_topic_leaves_nothing_behind(plane: MetadataPlane) -> None:
    before = await plane.store.tree("/")
    await create(plane, NewTopic("t", 3, config={"flush.ms": "1"}), NewTopic("tt"))
    topics = [plane.metadata.topics["t"], plane.metadata.topics["tt"]]
    assert await plane.controller.delete_topics(["t", "tt"]) == topics
    after = await plane.store.tree("/")
    left = {path for path in after.keys() - before.keys() if not path.startswith(PATH)}
    assert left <= {"/brokers/topics", "/config", "/config/topics"}
    assert plane.metadata.topics == {}
    assert plane.metadata.topics_by_id == {}


async def test_a_name_can_be_used_again_with_another_id(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t", config={"flush.ms": "1"}))
    first = plane.metadata.topics["t"]
    await plane.controller.delete_topics(["t"])
    await create(plane, NewTopic("t"))
    assert plane.metadata.topics["t"].id != first.id
    assert plane.metadata.topics["t"].config == {}


async def test_deleting_an_unknown_topic_fails(plane: MetadataPlane) -> None:
    (outcome,) = await plane.controller.delete_topics(["nothing"])
    assert code(outcome) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deleting_a_topic_deletes_foreign_nodes_below_it(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t"))
    await plane.store.transaction([Create("/brokers/topics/t/notes/of/an/operator")])
    (outcome,) = await plane.controller.delete_topics(["t"])
    assert code(outcome) is ErrorCode.NONE
    assert await plane.store.get("/brokers/topics/t") is None


# Growing


async def test_a_topic_grows_and_keeps_what_it_had(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t", 2))
    before = plane.metadata.topics["t"]
    assert await plane.controller.create_partitions([Growth("t", 4)]) == [None]
    topic = plane.metadata.topics["t"]
    assert topic.id == before.id
    assert topic.partitions[:2] == before.partitions
    assert [partition.leader for partition in topic.partitions] == [1] * 4


async def test_new_partitions_have_as_many_replicas_as_the_old(three: MetadataPlane) -> None:
    await create(three, NewTopic("t", 1, 2))
    await three.controller.create_partitions([Growth("t", 3)])
    assert {len(p.replicas) for p in three.metadata.topics["t"].partitions} == {2}
    await three.controller.create_partitions([Growth("t", 4, [[3, 2]])])
    assert three.metadata.topics["t"].partitions[3].replicas == (3, 2)


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        (Growth("nothing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Growth("t", 2), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", 1), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", -1), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (Growth("t", 3, [[1, 2], [2, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=repr,
)
async def test_a_failed_growth_has_a_reason(
    three: MetadataPlane, growth: Growth, expected: ErrorCode
) -> None:
    await create(three, NewTopic("t", 2, 2))
    before = await three.store.tree("/")
    (outcome,) = await three.controller.create_partitions([growth])
    assert code(outcome) is expected
    assert await three.store.tree("/") == before


async def test_validating_grows_nothing(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t", 1))
    outcome = await plane.controller.create_partitions([Growth("t", 2)], validate_only=True)
    assert outcome == [None]
    assert len(plane.metadata.topics["t"].partitions) == 1


# Configuration


async def test_a_topics_configuration_is_in_force_when_it_is_answered(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t"))
    for value in ("7", "8"):
        change = ConfigChange("t", setting(TopicConfig, retention_ms=value))
        assert await plane.controller.alter_topic_configs([change]) == [None]
        topic = plane.metadata.topics["t"]
        assert plane.metadata.topic_config(topic).retention_ms == int(value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ConfigChange("nothing", setting(TopicConfig, flush_ms="1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (ConfigChange("t", setting(TopicConfig, flush_ms="x")), ErrorCode.INVALID_CONFIG),
        (ConfigChange("t", setting(TopicConfig, no_such_key="1")), ErrorCode.INVALID_CONFIG),
        (
            ConfigChange("t", setting(TopicConfig, max_compaction_lag_ms="1")),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
    ids=lambda item: getattr(item, "name", None),
)
async def test_a_configuration_that_cannot_be_is_refused(
    plane: MetadataPlane, change: ConfigChange, expected: ErrorCode
) -> None:
    await create(plane, NewTopic("t", config={"min.compaction.lag.ms": "5"}))
    before = await plane.store.tree("/")
    (outcome,) = await plane.controller.alter_topic_configs([change])
    assert code(outcome) is expected
    assert await plane.store.tree("/") == before


async def test_nothing_is_written_when_nothing_changes(plane: MetadataPlane) -> None:
    await create(plane, NewTopic("t", config={"flush.ms": "5"}))
    before = await plane.store.tree("/")
    change = ConfigChange("t", setting(TopicConfig, flush_ms="5"))
    assert await plane.controller.alter_topic_configs([change]) == [None]
    change = ConfigChange("t", setting(TopicConfig, flush_ms="6"))
    assert await plane.controller.alter_topic_configs([change], validate_only=True) == [None]
    assert await plane.store.tree("/") == before


async def test_a_brokers_configuration_is_in_force_when_it_is_answered(
    plane: MetadataPlane,
) -> None:
    await create(plane, NewTopic("t"))
    for name, value in ((ALL_BROKERS, "7"), ("1", "8"), ("1", "9")):
        change = ConfigChange(name, setting(BrokerConfig, log_retention_ms=value))
        assert await plane.controller.alter_broker_configs([change]) == [None]
        assert plane.config.log_retention_ms == int(value)
        config = plane.metadata.topic_config(plane.metadata.topics["t"])
        assert config.retention_ms == int(value)


@pytest.mark.parametrize("change", [{"node_id": "2"}, {"no_such_key": "1"}, {"durability": "?"}])
async def test_a_brokers_configuration_that_cannot_be_is_refused(
    plane: MetadataPlane, change: dict[str, str]
) -> None:
    (outcome,) = await plane.controller.alter_broker_configs(
        [ConfigChange("1", setting(BrokerConfig, **change))]
    )
    assert code(outcome) is ErrorCode.INVALID_REQUEST


async def test_everything_outlives_a_restart(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await create(plane, NewTopic("t", 2, config={"flush.ms": "5"}))
        await plane.controller.alter_broker_configs(
            [ConfigChange("1", setting(BrokerConfig, num_partitions="3"))]
        )
        before, cluster_id = plane.metadata.topics["t"], plane.cluster_id
    async with metadata_plane(tmp_path) as plane:
        after = plane.metadata.topics["t"]
        assert (after.id, after.config, len(after.partitions)) == (before.id, before.config, 2)
        assert plane.config.num_partitions == 3
        assert plane.cluster_id == cluster_id


# Restarts


async def test_a_broker_that_comes_back_leads_in_a_new_epoch(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await create(plane, NewTopic("t", 700), NewTopic("u", 2))
    for epoch in (1, 2):
        async with metadata_plane(tmp_path) as plane:
            for topic in plane.metadata.topics.values():
                assert {(p.leader, p.leader_epoch) for p in topic.partitions} == {(1, 2 * epoch)}
            assert plane.metadata.brokers[1].epoch == epoch


async def test_partitions_of_other_leaders_are_unchanged(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        await create(plane, NewTopic("t", assignment={0: [2, 1], 1: [1, 2]}))
    async with metadata_plane(tmp_path, others=OTHERS) as plane:
        partitions = plane.metadata.topics["t"].partitions
        assert [(p.leader, p.leader_epoch) for p in partitions] == [(2, 0), (1, 2)]


async def test_a_topic_that_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await create(plane, NewTopic("good"), NewTopic("bad"))
        await plane.store.transaction([Set("/brokers/topics/bad", b"?")])
    async with metadata_plane(tmp_path) as plane:
        assert plane.metadata.topics.keys() == {"good"}
        assert [code(outcome) for outcome in await create(plane, NewTopic("more"))] == [0]


# Others who write as well


async def test_a_decision_is_made_again_after_a_conflict(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between decision and transaction another controller grows the topic."""
    await create(plane, NewTopic("t", 1))
    node = TopicNode(plane.metadata.topics["t"].id, {0: (1,), 1: (1,)})
    state = PartitionStateNode(1, 0, (1,), 1).encode()
    theirs: list[Op] = [
        Set(TopicNode.path("t"), node.encode()),
        Create(PartitionStateNode.path("t", 1), state),
        announce(ChangeNode(topics=("t",)).encode()),
    ]
    _overtake(plane, monkeypatch, theirs)
    assert await plane.controller.create_partitions([Growth("t", 3)]) == [None]
    assert len(plane.metadata.topics["t"].partitions) == 3


async def test_a_concurrent_change_is_not_overwritten(
    three: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between decision and transaction another controller moves a replica."""
    await create(three, NewTopic("t", assignment={0: [1]}))
    node = TopicNode(three.metadata.topics["t"].id, {0: (3,)})
    theirs: list[Op] = [
        Set(TopicNode.path("t"), node.encode()),
        announce(ChangeNode(topics=("t",)).encode()),
    ]
    _overtake(three, monkeypatch, theirs)
    assert await three.controller.create_partitions([Growth("t", 2)]) == [None]
    assert three.metadata.topics["t"].partitions[0].replicas == (3,)
    assert len(three.metadata.topics["t"].partitions) == 2


async def test_a_concurrently_created_topic_exists_already(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = TopicNode(b"x" * 16, {0: (1,)})
    theirs: list[Op] = [
        Create(TopicNode.path("t"), node.encode()),
        announce(ChangeNode(topics=("t",)).encode()),
    ]
    _overtake(plane, monkeypatch, theirs)
    (outcome,) = await create(plane, NewTopic("t"))
    assert code(outcome) is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_decision_under_a_former_controller_is_made_again(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs: list[Op] = [Set(CONTROLLER_EPOCH, b"99"), announce(ChangeNode(cluster=True).encode())]
    _overtake(plane, monkeypatch, theirs)
    (outcome,) = await create(plane, NewTopic("t"))
    assert code(outcome) is ErrorCode.NONE
    node = await plane.store.get(PartitionStateNode.path("t", 0))
    assert node is not None
    assert PartitionStateNode.decode(node.data).controller_epoch == 99


async def test_under_an_epoch_that_is_not_known_here_nothing_is_changed(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    _overtake(plane, monkeypatch, [Set(CONTROLLER_EPOCH, b"99")])
    (outcome,) = await create(plane, NewTopic("t"))
    assert code(outcome) is ErrorCode.NOT_CONTROLLER
    assert await plane.store.get(TopicNode.path("t")) is None


async def test_a_decision_that_always_conflicts_fails(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(plane, NewTopic("t"))
    config = ConfigNode({"flush.ms": "1"}).encode()

    def theirs(times: int) -> list[Op]:
        path = ConfigNode.topic_path("t")
        return [
            Set(path, config) if times else Create(path, config),
            announce(ChangeNode(configs=("t",)).encode()),
        ]

    _overtake_always(plane, monkeypatch, theirs)
    change = ConfigChange("t", setting(TopicConfig, retention_ms="1"))
    (outcome,) = await plane.controller.alter_topic_configs([change])
    assert code(outcome) is ErrorCode.NOT_CONTROLLER


def _overtake(plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch, theirs: list[Op]) -> None:
    _overtake_always(plane, monkeypatch, lambda times: [] if times else theirs)


def _overtake_always(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch, theirs: Callable[[int], list[Op]]
) -> None:
    """Before each transaction of the controller, another broker's takes place."""
    store, times = plane.store, 0
    transaction = store.transaction

    async def overtaken(ops: Any) -> Any:
        nonlocal times
        times += 1
        if others := theirs(times - 1):
            await transaction(others)
        return await transaction(ops)

    monkeypatch.setattr(store, "transaction", overtaken)


# When the store fails


async def test_a_store_that_fails_leaves_the_outcome_open(plane: MetadataPlane) -> None:
    await plane.store.close()
    (outcome,) = await create(plane, NewTopic("t"))
    assert code(outcome) is ErrorCode.REQUEST_TIMED_OUT
    assert isinstance(outcome, ApiError)
    assert outcome.retriable


async def test_a_change_too_large_for_the_store_is_a_policy_violation(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Sequence[Op]) -> list[Result]:
        raise TransactionTooLarge("2 MiB")

    monkeypatch.setattr(plane.store, "transaction", refuse)
    (outcome,) = await create(plane, NewTopic("t"))
    assert code(outcome) is ErrorCode.POLICY_VIOLATION
    assert isinstance(outcome, ApiError)
    assert not outcome.retriable


async def test_a_store_that_fails_after_the_transaction_does_too(
    plane: MetadataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: int) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(plane.metadata, "applied", fail)
    outcomes = await create(plane, NewTopic("t"), NewTopic("bad", 0))
    assert [code(outcome) for outcome in outcomes] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_PARTITIONS,
    ]


# Several brokers


async def test_every_broker_serves_requests_of_users(plane: MetadataPlane) -> None:
    config = BrokerConfig({"node.id": "2"})
    second = Controller(plane.store, plane.metadata, config, plane.clock)
    await second.start(0)
    assert [plane.controller.is_active, second.is_active] == [True, False]
    assert [code(outcome) for outcome in await second.create_topics([NewTopic("t")])] == [0]
    await plane.store.transaction([Delete(CONTROLLER)])
    await eventually(lambda: plane.controller.is_active or second.is_active)
    assert [code(outcome) for outcome in await create(plane, NewTopic("u"))] == [0]
    await second.stop()
