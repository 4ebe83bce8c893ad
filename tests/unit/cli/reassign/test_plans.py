"""Plans: read from Kafka's JSON, and made."""

import json
from collections import Counter

import pytest

from qbus.cli.reassign.plans import Plan, parse_plan, plan_document, plan_of, spread
from qbus.clients.types import TopicPartition
from qbus.errors import ConfigError


def partitions(*replicas: tuple[int, ...]) -> Plan:
    return {TopicPartition("t", index): some for index, some in enumerate(replicas)}


def test_unused_fields_of_kafkas_json_are_ignored() -> None:
    text = """{"version":1,"partitions":
        [{"topic":"t","partition":0,"replicas":[2,1],"log_dirs":["any","any"]}]}"""
    assert parse_plan(text, "plan") == partitions((2, 1))


def test_a_written_manifest_can_be_read() -> None:
    plan = partitions((1, 2), (2, 3))
    assert parse_plan(json.dumps(plan_document(plan)), "plan") == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected"),
        ("[]", "expected"),
        ('{"partitions": 1}', "expected"),
        ('{"partitions": [{"topic": "t"}]}', "expected"),
        ('{"version": 2, "partitions": []}', "only plans of version 1"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "no replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "twice"),
    ],
)
def test_invalid_plans_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"plan: .*{message}"):
        parse_plan(text, "plan")


def test_a_partition_is_listed_once() -> None:
    with pytest.raises(ConfigError, match="t-0 comes twice"):
        plan_of([("t", 0, (1,)), ("t", 0, (2,))])


def test_an_even_spread_does_not_move() -> None:
    current = partitions((1, 2), (2, 3), (3, 1))
    assert spread(current, {1: None, 2: None, 3: None}) == current


def test_new_brokers_get_their_share() -> None:
    current = partitions(*[(1, 2)] * 6)
    plan = spread(current, {1: None, 2: None, 3: None})
    assert Counter(node for replicas in plan.values() for node in replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 2, 2: 2, 3: 2}
    moved = sum(len(set(plan[place]) - set(current[place])) for place in plan)
    assert moved == 4, "no more than the newcomer's share"


def test_brokers_that_go_keep_nothing() -> None:
    plan = spread(partitions((1, 2), (2, 3), (3, 1)), {1: None, 2: None})
    assert all(set(replicas) == {1, 2} for replicas in plan.values())


def test_replicas_are_in_as_many_racks_as_there_are() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = spread(partitions(*[(5, 6)] * 4), racks)
    assert all({racks[node] for node in replicas} == {"a", "b"} for replicas in plan.values())


@pytest.mark.parametrize("brokers", [{}, {1: None}])
def test_too_few_brokers(brokers: dict[int, str | None]) -> None:
    with pytest.raises(ConfigError, match="t-0 has 2 replicas: name more brokers"):
        spread(partitions((1, 2)), brokers)
