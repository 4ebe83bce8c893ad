"""Transactions of a client that nobody here wrote, on a broker that is a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.isolated_reading import read_to_end
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

_PATIENCE_S = 30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic("t", 2, 1)]).values():
            made.result(_PATIENCE_S)
        yield broker


def producer(broker: BrokerProcess, name: str = "tx", timeout_ms: int = 60_000) -> ck.Producer:
    made = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    made.init_transactions(_PATIENCE_S)
    return made


def send(made: ck.Producer, *values: str) -> None:
    """Write values to both partitions, and wait until the broker has them."""
    made.begin_transaction()
    for number, value in enumerate(values):
        made.produce("t", value.encode(), partition=number % 2)
    assert made.flush(_PATIENCE_S) == 0


def committed(broker: BrokerProcess) -> list[str]:
    """What readers of committed records find, up to the ends that they are told."""
    return read(broker, "read_committed")


def read(broker: BrokerProcess, isolation: str) -> list[str]:
    """What readers of an isolation level find in both partitions."""
    found = read_to_end(broker.bootstrap, "t", 2, isolation, _PATIENCE_S)
    return sorted(value for values in found for value in values)


def wait_for(broker: BrokerProcess, *values: str) -> None:
    """Wait until exactly these are committed."""
    wait_until(lambda: committed(broker) == sorted(values), "what is committed", _PATIENCE_S)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: BrokerProcess) -> None:
    writing = producer(broker)
    send(writing, "a", "b")
    writing.commit_transaction(_PATIENCE_S)
    send(writing, "x", "y")
    writing.abort_transaction(_PATIENCE_S)
    send(writing, "c", "d")
    writing.commit_transaction(_PATIENCE_S)
    wait_for(broker, "a", "b", "c", "d")
    assert read(broker, "read_uncommitted") == ["a", "b", "c", "d", "x", "y"]


def test_a_commit_that_was_answered_survives_the_death_of_the_broker(
    broker: BrokerProcess,
) -> None:
    writing = producer(broker)
    for number in range(3):
        send(writing, f"a{number}", f"b{number}")
        writing.commit_transaction(_PATIENCE_S)
        broker.kill()  # as likely as not before the markers are written
        broker.start()
    expected = sorted(f"{name}{number}" for number in range(3) for name in "ab")
    wait_for(broker, *expected)


def test_an_open_transaction_survives_it_as_well(broker: BrokerProcess) -> None:
    writing = producer(broker)
    send(writing, "a", "b")
    broker.kill()
    broker.start()
    assert committed(broker) == []
    writing.produce("t", b"c", partition=0)
    writing.commit_transaction(_PATIENCE_S)
    wait_for(broker, "a", "b", "c")


def test_one_whose_producer_is_gone_ends_with_its_time(broker: BrokerProcess) -> None:
    send(producer(broker, "gone", timeout_ms=1_500), "x", "y")
    writing = producer(broker)
    send(writing, "a", "b")
    writing.commit_transaction(_PATIENCE_S)
    wait_for(broker, "a", "b")


def test_a_producer_that_another_one_replaced_is_fenced(broker: BrokerProcess) -> None:
    former = producer(broker)
    send(former, "x", "y")
    later = producer(broker)
    send(later, "a", "b")
    with pytest.raises(ck.KafkaException) as refused:
        former.commit_transaction(_PATIENCE_S)
    assert refused.value.args[0].fatal()
    later.commit_transaction(_PATIENCE_S)
    wait_for(broker, "a", "b")


def test_interleaved_producers_never_hinder_each_other(broker: BrokerProcess) -> None:
    producers = [producer(broker, f"tx-{number}") for number in range(4)]
    for turn in range(5):
        for number, one in enumerate(producers):
            send(one, f"{number}-{turn}-a", f"{number}-{turn}-b")
        for number, one in enumerate(producers):
            if (number + turn) % 2:
                one.commit_transaction(_PATIENCE_S)
            else:
                one.abort_transaction(_PATIENCE_S)
    expected = sorted(
        f"{number}-{turn}-{name}"
        for number in range(4)
        for turn in range(5)
        for name in "ab"
        if (number + turn) % 2
    )
    wait_for(broker, *expected)


def test_offsets_that_a_transaction_commits_count_when_it_does(broker: BrokerProcess) -> None:
    writing = producer(broker)
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "copiers"})
    place = ck.TopicPartition("t", 0)
    for offset, commit in ((5, False), (7, True), (9, False)):
        writing.begin_transaction()
        offsets = [ck.TopicPartition("t", 0, offset)]
        metadata = consumer.consumer_group_metadata()
        writing.send_offsets_to_transaction(offsets, metadata, _PATIENCE_S)
        if commit:
            writing.commit_transaction(_PATIENCE_S)
        else:
            writing.abort_transaction(_PATIENCE_S)
        (found,) = consumer.committed([place], _PATIENCE_S)
        assert found.offset == (-1001 if offset == 5 else 7)
    consumer.close()
