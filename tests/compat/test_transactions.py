"""Transactions with clients that no one here wrote."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from . import targets
from .clients import Client
from .records import numbered
from .transactional import ALL, Producer, Read, Refused, TransactionalClient
from .transactional.confluent import ConfluentTransactions

pytestmark = pytest.mark.compat

WITH_OFFSETS = [one for one in ALL if one.has_offsets]


@pytest.fixture(scope="module")
def transactional(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[TransactionalClient]:
    """Return one client; ``with_each`` names which."""
    skip_because_of(request.param.missing())
    client = request.param(bootstrap)
    yield client
    client.close()


with_each = pytest.mark.parametrize(
    "transactional", ALL, indirect=True, ids=lambda one: one.name, scope="module"
)
with_each_that_takes_offsets = pytest.mark.parametrize(
    "transactional", WITH_OFFSETS, indirect=True, ids=lambda one: one.name, scope="module"
)


@pytest.fixture(scope="module")
def reader(bootstrap: str) -> ConfluentTransactions:
    """Return the client that looks at what others have done."""
    return ConfluentTransactions(bootstrap)


def end_of(bootstrap: str, topic: str, *, committed: bool, partition: int = 0) -> int:
    """The end of a partition as an isolation level sees it."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    place = TopicPartition(topic, partition)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level).values()
    return int(future.result(30).offset)


def ends_of(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the end."""
    return (
        end_of(bootstrap, topic, committed=True, partition=partition),
        end_of(bootstrap, topic, committed=False, partition=partition),
    )


def has_end(bootstrap: str, topic: str, end: int) -> bool:
    """Whether that is the last stable offset; no, while the partition has no leader."""
    try:
        return end_of(bootstrap, topic, committed=True) == end
    except ck.KafkaException:
        return False


def sent(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """Begin a transaction with these records."""
    producer.begin()
    producer.send(topic, values, partition)


def committed(producer: Producer, topic: str, *values: str) -> None:
    """Run a whole transaction."""
    sent(producer, topic, *values)
    producer.commit()


@with_each
def test_a_commit_shows_records_and_its_marker_takes_an_offset(
    transactional: TransactionalClient, topic: str, bootstrap: str
) -> None:
    producer = transactional.producer(topic)
    sent(producer, topic, "a", "b", "c")
    producer.commit()
    sent(producer, topic, "d")
    producer.commit()
    producer.close()
    expected = [Read(0, "a"), Read(1, "b"), Read(2, "c"), Read(4, "d")]
    assert transactional.read(topic, 4) == expected
    wait_until(lambda: ends_of(bootstrap, topic) == (6, 6), "the last stable offset")


@with_each
def test_an_abort_hides_records_from_those_who_read_what_is_committed(
    transactional: TransactionalClient, topic: str, bootstrap: str
) -> None:
    producer = transactional.producer(topic)
    sent(producer, topic, "a", "b")
    producer.abort()
    sent(producer, topic, "c")
    producer.commit()
    producer.close()
    assert transactional.read(topic, 1) == [Read(3, "c")]
    everything = [Read(0, "a"), Read(1, "b"), Read(3, "c")]
    assert transactional.read(topic, 3, committed=False) == everything
    wait_until(lambda: ends_of(bootstrap, topic) == (5, 5), "the last stable offset")


@with_each
def test_nothing_behind_an_open_transaction_is_read(
    transactional: TransactionalClient, topic: str, bootstrap: str, reference: Client
) -> None:
    reference.produce(topic, numbered(2))
    producer = transactional.producer(topic)
    sent(producer, topic, "open")
    reference.produce(topic, numbered(3))
    assert ends_of(bootstrap, topic) == (2, 6)
    assert [one.offset for one in transactional.read(topic, 2)] == [0, 1]
    assert [one.offset for one in transactional.read(topic, 6, committed=False)] == [*range(6)]
    producer.commit()
    producer.close()
    assert [one.offset for one in transactional.read(topic, 6)] == [*range(6)]
    wait_until(lambda: ends_of(bootstrap, topic) == (7, 7), "the last stable offset")


def test_a_reader_that_waits_is_given_what_a_commit_shows(
    topic: str, reader: ConfluentTransactions
) -> None:
    producer = reader.producer(topic)
    sent(producer, topic, "a")
    found: list[Read] = []
    waiting = threading.Thread(target=lambda: found.extend(reader.read(topic, 1)))
    waiting.start()
    time.sleep(1.0)
    assert found == []
    producer.commit()
    waiting.join(10)
    assert found == [Read(0, "a")]
    producer.close()


@with_each
def test_a_transaction_spans_topics_and_partitions(
    transactional: TransactionalClient,
    name: str,
    reader: ConfluentTransactions,
    reference: Client,
) -> None:
    topics = [f"{name}-one", f"{name}-two"]
    for topic in topics:
        reference.create_topic(topic, 3)
    producer = transactional.producer(name)
    for ending in (producer.abort, producer.commit):
        producer.begin()
        for topic in topics:
            for partition in range(3):
                producer.send(topic, [f"{ending.__name__}-{partition}"], partition)
        ending()
    producer.close()
    for topic in topics:
        for partition in range(3):
            found = reader.read(topic, 1, partition=partition)
            assert found == [Read(2, f"commit-{partition}")]


@with_each
def test_a_second_producer_fences_the_first(
    transactional: TransactionalClient, topic: str, reader: ConfluentTransactions
) -> None:
    first = transactional.producer(topic)
    sent(first, topic, "a")
    first.commit()
    second = transactional.producer(topic)
    sent(second, topic, "b")
    with pytest.raises(Refused) as refusal:
        committed(first, topic, "late")
    assert refusal.value.is_fenced, refusal.value
    second.commit()
    assert reader.read(topic, 2) == [Read(0, "a"), Read(2, "b")]
    first.close()
    second.close()


@with_each
def test_a_new_producer_aborts_what_its_predecessor_left_open(
    transactional: TransactionalClient, topic: str, reader: ConfluentTransactions
) -> None:
    first = transactional.producer(topic)
    sent(first, topic, "left")
    second = transactional.producer(topic)
    sent(second, topic, "b")
    second.commit()
    (found,) = reader.read(topic, 1)
    assert found.value == "b"
    assert [one.value for one in reader.read(topic, 2, committed=False)] == ["left", "b"]
    with pytest.raises(Refused):
        first.commit()
    first.close()
    second.close()


@with_each
def test_producers_with_other_ids_are_not_fenced(
    transactional: TransactionalClient, topic: str, reader: ConfluentTransactions
) -> None:
    producers = [transactional.producer(f"{topic}-{number}") for number in range(3)]
    for turn in range(3):
        for number, producer in enumerate(producers):
            sent(producer, topic, f"{number}-{turn}")
        for number, producer in enumerate(producers):
            if number == turn:
                producer.abort()
            else:
                producer.commit()
    for producer in producers:
        producer.close()
    kept = [f"{number}-{turn}" for turn in range(3) for number in range(3) if number != turn]
    assert [one.value for one in reader.read(topic, 6)] == kept


@with_each
def test_transactions_one_after_the_other_do_not_stall(
    transactional: TransactionalClient, topic: str, bootstrap: str
) -> None:
    producer = transactional.producer(topic)
    started = time.monotonic()
    for number in range(20):
        sent(producer, topic, str(number))
        (producer.abort if number % 5 == 4 else producer.commit)()
    assert time.monotonic() - started < 20
    producer.close()
    committed = [str(number) for number in range(20) if number % 5 != 4]
    assert [one.value for one in transactional.read(topic, 16)] == committed
    wait_until(lambda: ends_of(bootstrap, topic) == (40, 40), "the last stable offset")


@with_each
def test_reading_what_many_producers_committed_and_aborted(
    transactional: TransactionalClient, topic: str, reader: ConfluentTransactions
) -> None:
    producers = [reader.producer(f"{topic}-{number}") for number in range(3)]
    kept = []
    for turn in range(10):
        for number, producer in enumerate(producers):
            producer.begin()
            producer.send(topic, [f"{turn}-{number}-{part}" for part in range(5)])
        for number, producer in enumerate(producers):
            if (turn + number) % 3 == 0:
                producer.abort()
            else:
                kept += [f"{turn}-{number}-{part}" for part in range(5)]
                producer.commit()
    for producer in producers:
        producer.close()
    found = transactional.read(topic, len(kept))
    assert [one.value for one in found] == kept
    assert len(transactional.read(topic, 150, committed=False)) == 150


@with_each_that_takes_offsets
def test_offsets_are_committed_with_the_transaction(
    transactional: TransactionalClient, topic: str, reference: Client
) -> None:
    producer = transactional.producer(topic)
    sent(producer, topic, "a")
    producer.send_offsets(topic, {(topic, 0): 1})
    assert reference.committed(topic, 0, topic) == -1
    producer.commit()
    wait_until(lambda: reference.committed(topic, 0, topic) == 1, "the offset")
    sent(producer, topic, "b")
    producer.send_offsets(topic, {(topic, 0): 2})
    producer.abort()
    producer.close()
    assert reference.committed(topic, 0, topic) == 1


@with_each
def test_a_copy_continues_where_the_last_one_stopped(
    transactional: TransactionalClient,
    name: str,
    reader: ConfluentTransactions,
    reference: Client,
) -> None:
    source, target = f"{name}-source", f"{name}-target"
    reference.create_topic(source, 2)
    reference.create_topic(target, 2)
    values = [record.value.decode() for record in numbered(40) if record.value]
    for partition in range(2):
        reference.produce(source, numbered(20), partition=partition)
    transactional.copy(source, target, name, 40)
    for partition in range(2):
        reference.produce(source, numbered(40)[20:], partition=partition)
    transactional.copy(source, target, name, 40)
    for partition in range(2):
        found = reader.read(target, 40, partition=partition)
        assert [one.value for one in found] == values
        wait_until(
            lambda partition=partition: reference.committed(source, partition, name) == 40,  # type: ignore[misc]
            "the offsets",
        )


@with_each
def test_a_transaction_that_takes_too_long_is_aborted(
    transactional: TransactionalClient,
    topic: str,
    bootstrap: str,
    reader: ConfluentTransactions,
) -> None:
    producer = transactional.producer(topic, timeout_ms=1_500)
    sent(producer, topic, "late")
    wait_until(lambda: ends_of(bootstrap, topic) == (2, 2), "the abort", 20, 0.2)
    with pytest.raises(Refused):
        producer.commit()
    producer.close()
    again = transactional.producer(topic)
    sent(again, topic, "in time")
    again.commit()
    again.close()
    assert [one.value for one in reader.read(topic, 1)] == ["in time"]


def test_a_time_out_beyond_the_brokers_is_refused(reader: ConfluentTransactions) -> None:
    with pytest.raises(Refused, match=r"(?i)timeout"):
        reader.producer("long", timeout_ms=1_000_000_000)


def test_the_internal_topic_is_known_as_such_and_takes_no_records(
    topic: str, bootstrap: str, reader: ConfluentTransactions
) -> None:
    producer = reader.producer(topic)
    sent(producer, topic, "a")
    producer.commit()
    producer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(ck.TopicCollection(["__transaction_state"]))
    assert described["__transaction_state"].result(30).is_internal
    plain = ck.Producer({"bootstrap.servers": bootstrap})
    errors: list[object] = []
    plain.produce(
        "__transaction_state", b"x", partition=0, on_delivery=lambda error, _: errors.append(error)
    )
    plain.flush(30)
    (error,) = errors
    assert isinstance(error, ck.KafkaError)
    assert error.code() == ck.KafkaError.TOPIC_EXCEPTION


def test_a_transaction_outlives_a_restart_of_the_broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with targets.server(request.config.getoption("--target"), tmp_path) as server:
        client = ConfluentTransactions(server.bootstrap)
        ends = client.producer("ends")
        sent(ends, "outlives", "a")
        ends.abort()
        producer = client.producer("outlives")
        sent(producer, "outlives", "b")
        producer.send_offsets("outlives", {("outlives", 0): 7})
        server.restart()
        wait_until(lambda: has_end(server.bootstrap, "outlives", 2), "the last stable offset")
        producer.send("outlives", ["c"])
        producer.commit()
        assert client.read("outlives", 2) == [Read(2, "b"), Read(3, "c")]
        server.kill()
        server.start()
        assert client.read("outlives", 2) == [Read(2, "b"), Read(3, "c")]
        wait_until(lambda: ends_of(server.bootstrap, "outlives") == (5, 5), "the ends")
        producer.close()
        ends.close()
