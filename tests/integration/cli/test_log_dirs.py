"""`qbus log-dirs`: directories, and moves between them, for people and programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def qbus(paths: list[Path]) -> Iterator[Qbus]:
    """A broker with two directories."""
    with BrokerProcess(paths[0], "--data-dir", str(paths[1])) as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t", "--partitions", "2", "--config", "segment.bytes=2000")
        for number in range(6):  # what is not full is too little to be slowed down
            partition = ("--partition", str(number % 2))
            qbus("produce", "t", *partition, stdin=b"a line of some length\n" * 200)
        yield qbus


def test_a_replica_moves(qbus: Qbus, paths: list[Path]) -> None:
    before = {one["path"]: one for one in qbus.json("log-dirs", "list")}
    assert set(before) == set(map(str, paths))
    assert all(one["online"] and one["usable_bytes"] > 0 for one in before.values())
    assert sum(len(one["replicas"]) for one in before.values()) == 2
    target = str(paths[1])
    said = qbus("log-dirs", "move", "t:0", "t:1", "--broker", "1", "--to", target)
    assert said.decode() == f"2 replicas of broker 1 will be in {target}.\n"

    def are_there() -> bool:
        (found,) = (one for one in qbus.json("log-dirs", "list") if one["path"] == target)
        return len(found["replicas"]) == 2 and not found["arriving"]

    wait_until(are_there, "both replicas are there")
    assert qbus("consume", "t", "--from", "earliest", "--exit-at-end").count(b"line") == 1200


def test_a_move_under_way_is_shown(qbus: Qbus, paths: list[Path]) -> None:
    limit = "replica.alter.log.dirs.io.max.bytes.per.second"
    qbus("broker-config", "--broker", "1", "--set", f"{limit}=0")
    moving = ("log-dirs", "move", "t:0", "--broker", "1", "--to")
    here, there = (
        str(path) for path in sorted(paths, key=lambda path: not (path / "t-0").exists())
    )
    qbus(*moving, there)
    lines = qbus("log-dirs", "list").decode().splitlines()
    assert lines[0].split() == ["broker", "path", "state", "replicas", "bytes", "free"]
    assert lines[-1].split()[:3] == ["t-0", "1", there]
    qbus(*moving, here)  # which ends it
    assert "moving" not in qbus("log-dirs", "list").decode()
    qbus("broker-config", "--broker", "1", "--unset", limit)


def test_what_cannot_be_moved_is_named(qbus: Qbus, paths: list[Path]) -> None:
    moving = ("log-dirs", "move", "--broker", "1", "--to")
    assert "LOG_DIR_NOT_FOUND" in qbus.failure(*moving, "/nowhere", "t:0")
    assert "absent-0" in qbus.failure(*moving, str(paths[1]), "absent:0")
    mistyped = qbus.run(*moving, str(paths[1]), "t")
    assert b"'t' is not of the form TOPIC:PARTITION" in mistyped.stderr


def test_plans_of_kafkas_tool_do_not_move_between_directories(qbus: Qbus) -> None:
    partition = '{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/disk2"]}'
    done = qbus.run("reassign", "execute", "-", stdin=b'{"partitions": [%b]}' % partition.encode())
    assert done.code != 0
    assert b"'qbus log-dirs move' moves replicas between directories" in done.stderr
