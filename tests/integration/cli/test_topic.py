"""`qbus topic` and `qbus broker-config` against a broker."""

import pytest

from .conftest import Qbus

pytestmark = pytest.mark.integration


def test_a_topic_from_its_creation_to_its_end(qbus: Qbus) -> None:
    created = qbus.json(
        "topic", "create", "life", "--partitions", "2", "--config", "retention.ms=86400000"
    )
    assert created["created"] is True
    assert (created["partitions"], created["replication_factor"]) == (2, 1)
    assert created["name"] in [found["name"] for found in qbus.json("topic", "list")]

    (described,) = qbus.json("topic", "describe", "life")
    assert described["id"] == created["id"]
    assert described["config"] == {"retention.ms": "86400000"}
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "elr": [],
        "offline_replicas": [],
        "start_offset": 0,
        "end_offset": 0,
        "size": 0,
        "unread": None,
    }

    (altered,) = qbus.json(
        "topic", "alter", "life", "--partitions", "4", "--config", "segment.bytes=1048576",
        "--delete-config", "retention.ms",
    )  # fmt: skip
    assert len(altered["partitions"]) == 4
    assert altered["config"] == {"segment.bytes": "1048576"}

    assert qbus.json("topic", "delete", "life") == [{"name": "life", "deleted": True}]
    assert "life" not in [found["name"] for found in qbus.json("topic", "list")]


def test_tables_for_people(qbus: Qbus, topic: str) -> None:
    assert b"Created topic for-people with 1 partition." in qbus("topic", "create", "for-people")
    lines = qbus("topic", "list").decode().splitlines()
    assert lines[0].split() == ["topic", "partitions", "replicas", "id"]
    assert any(line.split()[:3] == ["for-people", "1", "1"] for line in lines)
    described = qbus("topic", "describe", topic).decode()
    assert described.startswith(f"{topic}  3 partitions, 0 records, 0 B, id ")
    assert "in sync" in described
    assert qbus("topic", "delete", "for-people") == b"Deleted topic for-people.\n"


def test_existing_and_unknown_topics(qbus: Qbus, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in qbus.failure("topic", "create", topic)
    assert qbus.json("topic", "create", topic, "--if-not-exists")["created"] is False
    assert "UNKNOWN_TOPIC" in qbus.failure("topic", "describe", "absent")
    assert "cannot delete topic absent" in qbus.failure("topic", "delete", "absent")
    assert qbus.json("topic", "delete", "absent", "--if-exists") == [
        {"name": "absent", "deleted": False}
    ]


def test_a_dry_run_creates_nothing(qbus: Qbus) -> None:
    assert b"could be created" in qbus("topic", "create", "dry", "--dry-run")
    assert "INVALID_CONFIG" in qbus.failure(
        "topic", "create", "dry", "--dry-run", "--config", "cleanup.policy=shred"
    )
    assert "UNKNOWN_TOPIC" in qbus.failure("topic", "describe", "dry")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "a/../b"), "INVALID_TOPIC_EXCEPTION"),
        (("create", ".."), "INVALID_TOPIC_EXCEPTION"),
        (("create", "bad", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("create", "bad", "--config", "nosuch=1"), "INVALID_CONFIG"),
        (("create", "bad", "--config", "retention.ms=soon"), "INVALID_CONFIG"),
    ],
)
def test_errors_of_the_broker_are_shown(qbus: Qbus, arguments: tuple[str, ...], code: str) -> None:
    assert f"({code})" in qbus.failure("topic", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create",),
        ("create", "bad", "--partitions", "0"),
        ("create", "bad", "--partitions", "many"),
        ("create", "bad", "--config", "retention.ms"),
        ("alter", "bad"),
        ("delete",),
        ("list", "--bootstrap", "nowhere:port"),
    ],
)
def test_invalid_arguments_are_refused(qbus: Qbus, arguments: tuple[str, ...]) -> None:
    assert "--help'." in qbus.failure("topic", *arguments, code=2)


def test_partitions_are_never_taken_away(qbus: Qbus, topic: str) -> None:
    assert "INVALID_PARTITIONS" in qbus.failure("topic", "alter", topic, "--partitions", "2")


def test_topic_settings(qbus: Qbus, topic: str) -> None:
    assert qbus.json("topic", "config", topic) == []
    (changed,) = qbus.json("topic", "config", topic, "--set", "retention.ms=3600000")
    assert (changed["name"], changed["value"]) == ("retention.ms", "3600000")
    assert changed["source"] == "topic"
    every = {s["name"]: s for s in qbus.json("topic", "config", topic, "--all")}
    assert every["segment.bytes"]["default"] is True
    assert every["retention.ms"]["default"] is False
    assert qbus.json("topic", "config", topic, "--unset", "retention.ms") == []
    assert b"--all shows them" in qbus("topic", "config", topic)
    assert "INVALID_CONFIG" in qbus.failure("topic", "config", topic, "--set", "nosuch=1")


def test_broker_settings(qbus: Qbus) -> None:
    before = {s["name"] for s in qbus.json("broker-config")}
    assert {"listeners", "log.dirs"} <= before
    assert "num.partitions" not in before
    changed = {s["name"]: s for s in qbus.json("broker-config", "--set", "num.partitions=2")}
    assert changed["num.partitions"]["value"] == "2"
    assert qbus.json("topic", "create", "by-default")["partitions"] == 2
    after = {s["name"] for s in qbus.json("broker-config", "--unset", "num.partitions")}
    assert after == before
    (default,) = qbus.json("broker-config", "--all-brokers", "--set", "num.partitions=3")
    assert (default["name"], default["value"]) == ("num.partitions", "3")
    assert qbus.json("topic", "create", "by-the-default-of-all")["partitions"] == 3
    assert qbus.json("broker-config", "--all-brokers", "--unset", "num.partitions") == []
    qbus.failure("broker-config", "--all-brokers", "--broker", "1", code=2)
    qbus.failure("broker-config", "--set", "node.id=7")
    qbus.failure("broker-config", "--broker", "7")
