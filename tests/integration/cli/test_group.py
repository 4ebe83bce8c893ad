"""`qbus group` against a broker."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def readers(qbus: Qbus, topic: str, group: str) -> str:
    """A group that has read two of five records of partition 0."""
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n4\n")
    qbus("consume", topic, "--group", group, "--count", "2")
    return group


def committed(qbus: Qbus, group: str, topic: str) -> int | None:
    (described,) = qbus.json("group", "describe", group)
    offsets = {(o["topic"], o["partition"]): o["committed"] for o in described["offsets"]}
    result: int | None = offsets.get((topic, 0))
    return result


def test_a_group_without_members(qbus: Qbus, topic: str, readers: str) -> None:
    listed = {found["group"]: found for found in qbus.json("group", "list")}
    assert listed[readers] == {
        "group": readers,
        "state": "Empty",
        "protocol_type": "consumer",
        "type": "classic",
    }
    (described,) = qbus.json("group", "describe", readers)
    assert (described["state"], described["members"]) == ("Empty", [])
    offset = next(o for o in described["offsets"] if o["partition"] == 0)
    assert (offset["committed"], offset["end_offset"], offset["lag"]) == (2, 5, 3)


def test_tables_for_people(qbus: Qbus, topic: str, readers: str) -> None:
    assert qbus("group", "list").decode().split()[:2] == ["group", "state"]
    described = qbus("group", "describe", readers).decode()
    assert described.startswith(f"{readers}  Empty, 0 members, lag 3")
    assert [topic, "0", "2", "5", "3", "-"] in [line.split() for line in described.splitlines()]


def test_a_group_with_a_member(qbus: Qbus, topic: str, readers: str) -> None:
    command = ("consume", topic, "--group", readers)
    with qbus.start(*command, stdout=subprocess.DEVNULL) as member:
        try:
            wait_until(lambda: b"Stable, 1 member" in qbus("group", "describe", readers), "it")
            (described,) = qbus.json("group", "describe", readers)
            (only,) = described["members"]
            assert only["client_id"] == "qbus-consume"
            assert [p["partition"] for p in only["partitions"]] == [0, 1, 2]
            assert {o["member_id"] for o in described["offsets"]} == {only["member_id"]}
            assert "stop them first" in qbus.failure(
                "group", "reset-offsets", readers, "--to", "earliest"
            )
            assert "NON_EMPTY_GROUP" in qbus.failure("group", "delete", readers)
        finally:
            member.terminate()
            member.wait(30)


def test_a_dry_run_changes_nothing(qbus: Qbus, topic: str, readers: str) -> None:
    planned = qbus.json("group", "reset-offsets", readers, "--to", "earliest", "--dry-run")
    assert planned["applied"] is False
    assert {"topic": topic, "partition": 0, "from": 2, "to": 0} in planned["changes"]
    assert committed(qbus, readers, topic) == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 5),
        (("--to", "4"), 4),
        (("--to", "400"), 5),
        (("--to", "1h"), 0),
        (("--to", "2999-01-01"), 5),
        (("--shift-by", "1"), 3),
        (("--shift-by", "-1"), 1),
    ],
)
def test_offsets_are_reset(
    qbus: Qbus, topic: str, readers: str, options: tuple[str, ...], expected: int
) -> None:
    target = ("--topic", f"{topic}:0")
    assert qbus.json("group", "reset-offsets", readers, *target, *options)["applied"] is True
    assert committed(qbus, readers, topic) == expected


def test_a_reset_group_reads_again(qbus: Qbus, topic: str, readers: str) -> None:
    qbus("group", "reset-offsets", readers, "--to", "3", "--topic", topic)
    assert qbus("consume", topic, "--group", readers, "--exit-at-end") == b"3\n4\n"


def test_a_group_can_be_given_offsets_before_it_exists(qbus: Qbus, topic: str, group: str) -> None:
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n")
    qbus("group", "reset-offsets", group, "--topic", topic, "--to", "1")
    assert qbus("consume", topic, "--group", group, "--exit-at-end") == b"1\n"


def test_a_group_is_deleted(qbus: Qbus, readers: str) -> None:
    assert qbus.json("group", "delete", readers) == [{"group": readers, "deleted": True}]
    assert readers not in [found["group"] for found in qbus.json("group", "list")]


def test_unknown_groups_and_topics_are_errors(qbus: Qbus, topic: str) -> None:
    assert "GROUP_ID_NOT_FOUND" in qbus.failure("group", "describe", "absent")
    assert "GROUP_ID_NOT_FOUND" in qbus.failure("group", "delete", "absent")
    assert "has no committed offsets" in qbus.failure(
        "group", "reset-offsets", "absent", "--to", "earliest"
    )
    reset = ("group", "reset-offsets", "absent", "--to", "earliest", "--topic")
    assert "UNKNOWN_TOPIC" in qbus.failure(*reset, "absent")
    assert "has no partition 9" in qbus.failure(*reset, f"{topic}:9")
    qbus.failure(*reset, f"{topic}:x", code=2)


def test_contradictory_options_are_refused(qbus: Qbus) -> None:
    qbus.failure("group", "reset-offsets", "g", code=2)
    qbus.failure("group", "reset-offsets", "g", "--to", "latest", "--shift-by", "1", code=2)
    qbus.failure("group", "reset-offsets", "g", "--to", "never", code=2)


def test_a_group_that_never_committed_lags_by_the_whole_log(
    qbus: Qbus, topic: str, group: str
) -> None:
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n")
    command = ("consume", topic, "--group", group, "--from", "latest")
    with qbus.start(*command, stdout=subprocess.DEVNULL) as member:
        try:
            wait_until(
                lambda: b"Stable, 1 member" in qbus.run("group", "describe", group).stdout, "it"
            )
            (described,) = qbus.json("group", "describe", group)
            found = {o["partition"]: o for o in described["offsets"]}
            assert (found[0]["committed"], found[0]["end_offset"], found[0]["lag"]) == (None, 3, 3)
            assert (found[1]["end_offset"], found[1]["lag"]) == (0, 0)
            table = qbus("group", "describe", group).decode()
            assert "lag 3 (all of the log of 3 partitions without a commit)" in table
            assert "3 (all)" in table
        finally:
            member.terminate()
            member.wait(30)


def test_a_first_reader_says_what_it_waits_for(tmp_path: Path) -> None:
    """By default a new group waits for more members, for 3 s."""
    with BrokerProcess(tmp_path / "data") as broker, (tmp_path / "told").open("wb") as told:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t")
        with qbus.start("consume", "t", "--group", "g", stderr=told) as member:
            try:
                wait_until((tmp_path / "told").read_bytes, "a line", 2.5)
            finally:
                member.terminate()
    line = (tmp_path / "told").read_text()
    assert line.startswith("qbus: waiting for a share of t in group g: ")
    assert line.count("waiting") == 1


def test_a_group_is_watched(qbus: Qbus, topic: str, readers: str) -> None:
    """The numbers follow what the group reads."""
    command = ("group", "describe", readers, "--watch", "--json")
    with qbus.start(*command, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        seen = (json.loads(line)[0]["offsets"][0] for line in watching.stdout)
        assert next(seen)["lag"] == 3
        qbus("consume", topic, "--group", readers, "--exit-at-end")
        assert next(offset["lag"] for offset in seen if offset["lag"] != 3) == 0
