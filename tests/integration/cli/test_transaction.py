"""`qbus transaction` against a broker."""

import time
from collections.abc import Iterator

import pytest

from qbus import Producer, ProducerFenced
from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def producer(qbus: Qbus, group: str) -> Iterator[Producer]:
    """A producer whose transactional id is the name of a group that there is not."""
    with Producer(qbus.environment["QBUS_BOOTSTRAP"], transactional_id=group, linger_ms=0) as made:
        yield made


def failure(qbus: Qbus, *arguments: str, code: int = 1) -> str:
    """What a command says that fails."""
    done = qbus.run(*arguments)
    assert done.code == code, done
    return done.stderr.decode()


def state(qbus: Qbus, name: str) -> str:
    (described,) = qbus.json("transaction", "describe", name)
    found: str = described["state"]
    return found


def test_an_open_transaction(qbus: Qbus, topic: str, group: str, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send_and_wait(topic, b"1", partition=0)
    (listed,) = qbus.json("transaction", "list", "--state", "Ongoing", "--matching", group)
    assert listed["transactional_id"] == group
    (described,) = qbus.json("transaction", "describe", group)
    assert described["producer_id"] == listed["producer_id"]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert 0 <= described["age_ms"] < 60_000
    assert described["start_time"] <= time.time() * 1000
    lines = qbus("transaction", "describe", group).decode().splitlines()
    assert lines[0].startswith(f"{group}  Ongoing for ")
    assert [topic, "0"] in [line.split() for line in lines]
    assert group in qbus("transaction", "list").decode()
    assert qbus.json("transaction", "list", "--longer-than", "1h", "--matching", group) == []
    producer.commit_transaction()
    wait_until(lambda: state(qbus, group) == "CompleteCommit", "the markers")
    (described,) = qbus.json("transaction", "describe", group)
    assert (described["start_time"], described["age_ms"], described["partitions"]) == (
        None,
        None,
        [],
    )


def test_committed_records_are_printed_on_request(
    qbus: Qbus, topic: str, producer: Producer
) -> None:
    for value in (b"1", b"aborted", b"2"):
        producer.begin_transaction()
        producer.send_and_wait(topic, value, partition=0)
        (producer.abort_transaction if value == b"aborted" else producer.commit_transaction)()
    producer.begin_transaction()
    producer.send_and_wait(topic, b"open", partition=0)
    place = ("consume", topic, "--partition", "0", "--exit-at-end")
    assert qbus(*place, "--committed") == b"1\n2\n"
    assert qbus(*place) == b"1\naborted\n2\nopen\n"
    producer.commit_transaction()
    wait_until(lambda: qbus(*place, "--committed") == b"1\n2\nopen\n", "the marker")


def test_a_transaction_is_aborted_by_its_id(
    qbus: Qbus, topic: str, group: str, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.send_and_wait(topic, b"1", partition=0)
    printed = qbus("transaction", "abort", group).decode()
    assert printed == f"Aborted the transaction of {group}, if one was open.\n"
    with pytest.raises(ProducerFenced):
        producer.commit_transaction()


def test_what_has_a_coordinator_neither_hangs_nor_is_aborted_past_it(
    qbus: Qbus, topic: str, group: str, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.send_and_wait(topic, b"1", partition=0)
    found = qbus("transaction", "find-hanging", topic, "--longer-than", "0s").decode()
    assert not found  # the sentence is on stderr
    assert qbus.json("transaction", "find-hanging", "--longer-than", "0s") == []
    place = ("--topic", topic, "--partition", "0")
    refused = failure(qbus, "transaction", "abort", *place, "--start-offset", "0")
    assert f"qbus transaction abort {group}" in refused
    assert "open ones begin at [0]" in failure(
        qbus, "transaction", "abort", *place, "--start-offset", "5"
    )
    producer.commit_transaction()
    assert "none is open" in failure(qbus, "transaction", "abort", *place, "--start-offset", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort",),
        ("abort", "x", "--topic", "t"),
        ("abort", "--topic", "t", "--partition", "0"),
        ("describe",),
        ("list", "--longer-than", "soon"),
    ],
)
def test_what_cannot_be_meant(qbus: Qbus, arguments: tuple[str, ...]) -> None:
    assert "qbus" in failure(qbus, "transaction", *arguments, code=2)


def test_an_id_that_nobody_knows(qbus: Qbus) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in failure(qbus, "transaction", "describe", "nobody")
