"""`qbus delay`: what topics hold back, for people and programs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def qbus(tmp_path: Path) -> Iterator[Qbus]:
    """A broker with a topic that holds three records back."""
    with BrokerProcess(tmp_path) as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t", "--partitions", "2", "--config", "qbus.delay.enable=true")
        for number, delay in enumerate(("2h", "30d", "1h")):
            options = ("--partition", str(number % 2), "--header", f"qbus-delay={delay}")
            qbus("produce", "t", *options, stdin=b"line %d\n" % number)
        qbus("produce", "t", "--partition", "0", stdin=b"visible\n")
        yield qbus


def test_what_is_held_back_in_the_order_in_which_it_is_due(qbus: Qbus) -> None:
    found = qbus.json("delay", "list", "t")
    assert (found["topic"], found["pending"]) == ("t", 3)
    places = [(one["partition"], one["offset"]) for one in found["records"]]
    assert places == [(0, 1), (0, 0), (1, 0)]
    assert found["next_due"] == found["records"][0]["due"]
    assert [one["pending"] for one in found["partitions"]] == [2, 1]
    assert len(qbus.json("delay", "list", "t", "--limit", "1")["records"]) == 1
    assert qbus.json("delay", "list", "t", "--partition", "1")["pending"] == 1


def test_a_delay_for_all_lines(qbus: Qbus) -> None:
    qbus("topic", "create", "u", "--delay")
    qbus("produce", "u", "--delay", "15m", "--ttl", "1h", stdin=b"one\ntwo\n")
    said = qbus.failure("produce", "u", "--deliver-at", "2100-01-01T00:00", stdin=b"too far\n")
    assert "qbus.delay.max.ms (63072000000)" in said
    found = qbus.json("delay", "list", "u")
    assert found["pending"] == 2
    (due,) = {record["due"] - record["taken"] for record in found["records"]}
    assert due == 900_000


def test_a_topic_that_holds_nothing_back_says_so_at_once(qbus: Qbus) -> None:
    qbus("topic", "create", "v")
    said = qbus.failure("produce", "v", "--delay", "15m", stdin=b"line\n")
    assert said.startswith("topic v holds nothing back: 'qbus topic config v --set qbus.delay")
    said = qbus.failure("produce", "typo", "--delay", "15m", stdin=b"line\n")
    assert "typo" in said
    assert "exist" in said
    assert "typo" not in str(qbus.json("topic", "list"))
    assert qbus("consume", "v", "--from", "earliest", "--exit-at-end") == b""


@pytest.mark.parametrize(
    "options", [("--delay", "soon"), ("--delay", "1m", "--deliver-at", "@1"), ("--ttl", "1m")]
)
def test_options_that_make_no_sense(qbus: Qbus, options: tuple[str, ...]) -> None:
    qbus.failure("produce", "t", *options, stdin=b"line\n", code=2)


def test_people_read_a_sentence_and_a_table(qbus: Qbus) -> None:
    said = qbus("delay", "list", "t").decode()
    assert re.match(r"t: 3 records held back; the next is due in \d+ min\.\n", said)
    assert len(said.splitlines()) == 6


def test_consumers_get_what_is_visible_and_no_more(qbus: Qbus) -> None:
    assert qbus("consume", "t", "--from", "earliest", "--exit-at-end") == b"visible\n"


def test_a_cancelled_record_is_not_held_back_any_more(qbus: Qbus) -> None:
    qbus("produce", "t", "--partition", "1", "--header", "qbus-cancel=0", stdin=b"x\n")
    assert qbus.json("delay", "list", "t", "--partition", "1")["pending"] == 0
    assert qbus("delay", "list", "t", "--partition", "1") == b"t: Nothing is held back.\n"


def test_one_record_is_shown_whole(qbus: Qbus) -> None:
    qbus(
        "produce",
        "t",
        "--partition",
        "1",
        "--key",
        "k",
        "--delay",
        "1h",
        "--ttl",
        "5m",
        stdin=b"v\n",
    )
    found = qbus.json("delay", "show", "t", "1", "1")
    assert (found["key"], found["value"], found["ttl"]) == ("k", "v", 300_000)
    assert found["headers"] == [["qbus-delay", "1h"], ["qbus-ttl", "5m"]]
    lines = qbus("delay", "show", "t", "1", "1").decode().splitlines()
    assert [line.split()[0] for line in lines] == [
        *("due", "sent", "dropped", "key", "header", "header", "value")
    ]
    said = qbus.failure("delay", "show", "t", "0", "2")
    assert said.startswith("offset 2 of t-0 is no delayed record (any more)")


def test_cancelled_by_place_and_by_key(qbus: Qbus) -> None:
    assert qbus("delay", "cancel", "t", "1", "0") == b"Cancelled offset 0 of t-1.\n"
    said = qbus.failure("delay", "cancel", "t", "1", "0")
    assert said.startswith("offset 0 of t-1 is no delayed record (any more)")
    for _ in range(2):
        qbus("produce", "t", "--key", "k", "--delay", "1h", stdin=b"v\n")
    assert qbus.json("delay", "cancel", "t", "--key", "k")["cancelled"]
    assert "holds none of it back" in qbus.failure("delay", "cancel", "t", "--key", "k")
    assert qbus.json("delay", "list", "t")["pending"] == 2


def test_rescheduled(qbus: Qbus) -> None:
    done = qbus("delay", "reschedule", "t", "0", "1", "--delay", "5m")
    assert done == b"Rescheduled offset 1 of t-0.\n"
    (first, _) = qbus.json("delay", "list", "t", "--partition", "0")["records"]
    assert first["due"] - first["taken"] < 400_000
    qbus("delay", "reschedule", "t", "0", "1", "--deliver-at", "1")
    assert b"line 2" in qbus("consume", "t", "--from", "earliest", "--count", "2")
    said = qbus.failure("delay", "reschedule", "t", "0", "1", "--delay", "5m")
    assert said.startswith("offset 1 of t-0 is no delayed record (any more)")


def test_orders_need_a_topic_that_holds_back(qbus: Qbus) -> None:
    qbus("topic", "create", "v")
    for arguments in (("cancel", "v", "0", "0"), ("reschedule", "v", "0", "0", "--delay", "1m")):
        assert "v holds nothing back" in qbus.failure("delay", *arguments)
    assert qbus("consume", "v", "--from", "earliest", "--exit-at-end") == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("cancel", "t"),
        ("cancel", "t", "0"),
        ("cancel", "t", "0", "0", "--key", "k"),
        ("reschedule", "t", "0", "0"),
        ("reschedule", "t", "0", "0", "--delay", "1m", "--deliver-at", "1"),
        ("reschedule", "t", "0", "0", "--deliver-at", "15m"),
        ("show", "t", "-1", "0"),
    ],
)
def test_arguments_that_make_no_sense(qbus: Qbus, arguments: tuple[str, ...]) -> None:
    qbus.failure("delay", *arguments, code=2)


def test_a_topic_is_described_with_what_it_holds_back(qbus: Qbus) -> None:
    (document,) = qbus.json("topic", "describe", "t")
    assert document["delayed"]["pending"] == 3
    assert document["delayed"]["next_due"] == qbus.json("delay", "list", "t")["next_due"]
    assert b"3 records held back; the next is due in" in qbus("topic", "describe", "t")
    qbus("topic", "create", "v")
    assert qbus.json("topic", "describe", "v")[0]["delayed"] is None
