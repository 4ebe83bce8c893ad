"""The target's topics are created and configured, also by several processes at once."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from qbus.clients.admin.types import CreatedTopic, NewTopic
from qbus.clients.errors import PartialFailure
from qbus.clients.mirror.config import LinkConfig, Topics
from qbus.clients.mirror.provenance import PATH, SOURCE, TOPIC_ID, Provenance
from qbus.clients.mirror.routes import Plan, Topic, plan
from qbus.clients.mirror.topics import TargetTopics, copied, uncompacted
from qbus.errors import ApiError, ErrorCode

CONFIG = LinkConfig("a", "b", "s:1", "t:1", (".*",))
ID = UUID(int=7)


class Admin:
    """Notes what it is asked for, and refuses what it is told to."""

    def __init__(self, **refused: ErrorCode) -> None:
        self.created: list[NewTopic] = []
        self.enlarged: list[tuple[str, int]] = []
        self.altered: list[tuple[str, Mapping[str, str]]] = []
        self._refused = refused

    async def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, CreatedTopic]:
        wanted = list(topics)
        errors = {
            one.name: ApiError(self._refused[one.name.removeprefix("a.")])
            for one in wanted
            if one.name.removeprefix("a.") in self._refused
        }
        self.created += [one for one in wanted if one.name not in errors]
        done = {one.name: CreatedTopic(one.name, ID, 1, 1) for one in self.created}
        if errors and len(wanted) == 1:
            raise next(iter(errors.values()))
        if errors:
            raise PartialFailure(errors, done)
        return done

    async def create_partitions(self, topic: str, total: int) -> None:
        if "enlarge" in self._refused:
            raise ApiError(self._refused["enlarge"])
        self.enlarged.append((topic, total))

    async def alter_config(self, _: object, topic: str, *, set: Mapping[str, str]) -> None:  # noqa: A002 - the admin's
        if "alter" in self._refused:
            raise ApiError(self._refused["alter"])
        self.altered.append((topic, set))


def topic(name: str, partitions: int = 3, replicas: int = 3, **config: str) -> Topic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Topic(name, ID, partitions, settings, replicas=replicas)


def mirror(name: str, partitions: int = 3, path: tuple[str, ...] = ("a",), **config: str) -> Topic:
    made = topic(name, partitions, 3, **config)
    return replace(made, config={**made.config, **Provenance("a", str(ID), path).config()})


def named(topics: Iterable[Topic]) -> dict[str, Topic]:
    return {one.name: one for one in topics}


async def applied(
    admin: Admin,
    source: Iterable[Topic],
    target: Iterable[Topic] = (),
    config: LinkConfig = CONFIG,
    brokers: int = 2,
) -> list[str]:
    """What could not be done."""
    here, there = named(source), named(target)
    made: Any = admin
    topics = TargetTopics(config, made, lambda: brokers)
    found = await topics.apply(plan(config, here, there), here, there)
    return [obstacle.reason for obstacle in found]


def test_selected_keys_of_a_configuration_are_copied() -> None:
    config = {
        "retention.ms": "1",
        "min.insync.replicas": "2",
        "qbus.delay.dead.letter.topic": "late",
        "message.timestamp.type": "LogAppendTime",
        SOURCE: "c",
        PATH: "c",
        TOPIC_ID: "x",
    }
    one = Topic("orders", ID, 1, config)
    assert copied(CONFIG, one) == {"retention.ms": "1"}
    nothing = replace(CONFIG, topics_at_target=Topics(copy_config=False))
    assert copied(nothing, one) == {}


async def test_a_new_topic_gets_partitions_configuration_and_as_many_replicas_as_can_be() -> None:
    admin = Admin()
    assert await applied(admin, [topic("orders", 5, retention_ms="1")]) == []
    (made,) = admin.created
    assert (made.name, made.partitions, made.replication_factor) == ("a.orders", 5, 2)
    assert made.config == {"retention.ms": "1", SOURCE: "a", TOPIC_ID: str(ID), PATH: "a"}


async def test_a_replication_factor_that_was_chosen() -> None:
    admin = Admin()
    config = replace(CONFIG, topics_at_target=Topics(replication_factor=1))
    await applied(admin, [topic("orders")], config=config)
    assert admin.created[0].replication_factor == 1


async def test_a_topic_that_cannot_be_created_does_not_stop_others() -> None:
    admin = Admin(bad=ErrorCode.INVALID_CONFIG, there=ErrorCode.TOPIC_ALREADY_EXISTS)
    (reason,) = await applied(admin, [topic("bad"), topic("good"), topic("there")])
    assert "a.bad" in reason
    assert [one.name for one in admin.created] == ["a.good"]


async def test_the_only_one_cannot_be_created() -> None:
    assert len(await applied(Admin(bad=ErrorCode.INVALID_CONFIG), [topic("bad")])) == 1
    assert await applied(Admin(there=ErrorCode.TOPIC_ALREADY_EXISTS), [topic("there")]) == []


async def test_copies_follow_partitions_and_configuration() -> None:
    admin = Admin()
    source = [topic("orders", 6, retention_ms="2", segment_ms="5")]
    target = [mirror("a.orders", 3, retention_ms="1", segment_ms="5", flush_ms="9")]
    assert await applied(admin, source, target) == []
    assert admin.enlarged == [("a.orders", 6)]
    assert admin.altered == [("a.orders", {"retention.ms": "2"})]


async def test_correct_topics_are_left_alone() -> None:
    admin = Admin()
    await applied(admin, [topic("orders")], [mirror("a.orders")])
    assert (admin.created, admin.enlarged, admin.altered) == ([], [], [])


async def test_another_process_was_first() -> None:
    admin = Admin(enlarge=ErrorCode.INVALID_PARTITIONS)
    assert await applied(admin, [topic("orders", 6)], [mirror("a.orders", 3)]) == []


async def test_failed_changes_are_obstacles() -> None:
    code = ErrorCode.POLICY_VIOLATION
    source = [topic("orders", 6, retention_ms="2")]
    found = await applied(Admin(enlarge=code, alter=code), source, [mirror("a.orders", 3)])
    assert len(found) == 2


async def test_a_shorter_path_is_configured() -> None:
    admin = Admin()
    await applied(admin, [topic("orders")], [mirror("a.orders", path=("a", "c"))])
    assert admin.altered == [("a.orders", {PATH: "a"})]


async def test_an_empty_plan_asks_for_nothing() -> None:
    made: Any = Admin()
    empty = Plan((), (), (), ())
    assert await TargetTopics(CONFIG, made, lambda: 1).apply(empty, {}, {}) == []
    assert made.created == []


@pytest.mark.parametrize(
    ("policy", "retention"),
    [
        ("compact", {"retention.ms": "-1", "retention.bytes": "-1"}),
        ("compact,delete", {"retention.ms": "5"}),
        ("delete, compact", {"retention.ms": "5"}),
        ("delete", {"retention.ms": "5"}),
    ],
)
def test_compacted_topics_are_kept_whole(policy: str, retention: dict[str, str]) -> None:
    config = uncompacted({"cleanup.policy": policy, "retention.ms": "5", "x": "y"})
    assert config == {"cleanup.policy": "delete", "x": "y"} | retention


async def test_the_configuration_of_a_compacted_topic_is_stable() -> None:
    admin = Admin()
    source = topic("t", cleanup_policy="compact")
    assert not await applied(admin, [source])
    (made,) = admin.created
    assert made.config["cleanup.policy"] == "delete"
    there = Topic(made.name, ID, 3, made.config)
    assert not await applied(admin, [source], [there])
    assert not admin.altered
