"""Committed offsets in the log and in the metadata store: kills, transactions, moves, for real."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 4
QUICK = ("-o", "group.initial.rebalance.delay.ms=0")


def running(directory: Path, storage: str) -> BrokerProcess:
    return BrokerProcess(directory, *QUICK, "-o", f"offsets.storage={storage}")


@pytest.fixture(params=["log", "zookeeper"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    with running(tmp_path, request.param) as process:
        create_topic(process)
        yield process
        assert process.alive


def create_topic(broker: BrokerProcess, name: str = "t") -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)


def consumer(broker: BrokerProcess, group: str = "g", **options: object) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **options,
        }
    )


def commit(client: ck.Consumer, *offsets: int) -> None:
    """Commit an offset for each partition, from the first on."""
    places = [ck.TopicPartition("t", index, at) for index, at in enumerate(offsets)]
    for answer in client.commit(offsets=places, asynchronous=False):
        assert answer.error is None, answer


def committed(broker: BrokerProcess, group: str = "g") -> list[int]:
    client = consumer(broker, group)
    try:
        places = [ck.TopicPartition("t", index) for index in range(PARTITIONS)]
        return [place.offset for place in client.committed(places, timeout=30)]
    finally:
        client.close()


def producer(broker: BrokerProcess, name: str = "tx", **options: object) -> ck.Producer:
    made = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, **options})
    made.init_transactions(60)
    return made


def set_storage(broker: BrokerProcess, storage: str) -> None:
    command = ["broker-config", "--all-brokers", "--set", f"offsets.storage={storage}"]
    subprocess.run(
        [sys.executable, "-m", "qbus", *command, "--bootstrap", broker.bootstrap],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
    )


def test_commits_survive_a_kill(broker: BrokerProcess) -> None:
    client = consumer(broker)
    commit(client, 5, 6, 7, 8)
    commit(client, 9)

    broker.kill()
    broker.start()

    assert committed(broker) == [9, 6, 7, 8]
    client.close()


def test_a_transaction_brings_offsets_or_nothing(broker: BrokerProcess) -> None:
    reader = consumer(broker)
    commit(reader, 1, 1)
    writer = producer(broker)

    for end, expected in ((writer.abort_transaction, [1, 1]), (writer.commit_transaction, [5, 1])):
        writer.begin_transaction()
        writer.produce("t", b"out", partition=3)
        place = ck.TopicPartition("t", 0, 5)
        writer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 30)
        end(60)
        assert committed(broker)[:2] == expected

    reader.close()


def test_offsets_of_an_open_transaction_survive_a_kill(broker: BrokerProcess) -> None:
    reader = consumer(broker)
    commit(reader, 1)
    writer = producer(broker)
    writer.begin_transaction()
    writer.produce("t", b"out", partition=3)
    place = ck.TopicPartition("t", 0, 5)
    writer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 30)
    writer.flush(30)

    broker.kill()
    broker.start()
    writer.commit_transaction(60)

    assert committed(broker)[0] == 5
    reader.close()


def test_read_process_write_counts_every_record_once(broker: BrokerProcess) -> None:
    """One transaction is aborted: what it read is read again, from what was committed."""
    create_topic(broker, "out")
    source = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        source.produce("t", str(number), partition=number % PARTITIONS)
    assert source.flush(30) == 0
    reader = consumer(broker)
    reader.subscribe(["t"])
    writer = producer(broker)
    seen, rounds = 0, 0
    while seen < 100:
        records = [one for one in reader.consume(20, 1) if one.error() is None]
        if not records:
            continue
        rounds += 1
        writer.begin_transaction()
        for record in records:
            writer.produce("out", record.value(), partition=0)
        places = reader.position(reader.assignment())
        writer.send_offsets_to_transaction(places, reader.consumer_group_metadata(), 30)
        if rounds == 2:
            writer.abort_transaction(60)
            for place in reader.committed(reader.assignment(), 30):
                reader.seek(ck.TopicPartition("t", place.partition, max(place.offset, 0)))
        else:
            writer.commit_transaction(60)
            seen += len(records)

    check = consumer(broker, "check", **{"isolation.level": "read_committed"})
    check.assign([ck.TopicPartition("out", 0, 0)])
    values: list[int] = []
    while len(values) < 100:
        values += [int(one.value() or b"") for one in check.consume(50, 1) if not one.error()]
    assert sorted(values) == list(range(100))
    assert committed(broker) == [25] * PARTITIONS
    reader.close()
    check.close()


@pytest.mark.parametrize(("before", "after"), [("zookeeper", "log"), ("log", "zookeeper")])
def test_a_move_loses_nothing_and_costs_no_rebalance(
    tmp_path: Path, before: str, after: str
) -> None:
    """A member that polls and commits all the while keeps its partitions."""
    with running(tmp_path, before) as broker:
        create_topic(broker)
        assigned: list[int] = []
        member = consumer(broker)
        member.subscribe(["t"], on_assign=lambda _, places: assigned.append(len(places)))
        wait_until(lambda: member.poll(0.1) is None and assigned, "it has its partitions")
        others = consumer(broker, "other")
        commit(others, 3, 4)
        is_over = threading.Event()
        last = 0

        def keep_committing() -> None:
            nonlocal last
            while not is_over.is_set():
                member.poll(0)
                commit(member, last + 1)
                last += 1

        work = threading.Thread(target=keep_committing)
        work.start()
        try:
            set_storage(broker, after)
            wait_until(lambda: is_kept_in(broker, after), "the move is over")
            seen = last
            wait_until(lambda: last > seen + 3, "commits go on")
        finally:
            is_over.set()
            work.join()

        assert assigned == [PARTITIONS]
        assert committed(broker)[0] == last
        assert committed(broker, "other")[:2] == [3, 4]
        broker.restart()
        assert committed(broker)[0] == last
        assert committed(broker, "other")[:2] == [3, 4]
        member.close()
        others.close()


def is_kept_in(broker: BrokerProcess, storage: str) -> bool:
    """Whether the broker says so; its log does."""
    lines = [line for line in broker.log_text().splitlines() if "committed offsets" in line]
    said = {"log": "committed offsets: log", "zookeeper": "in the metadata store again"}
    return any(said[storage] in line for line in lines)


def test_kafkas_own_format_is_on_the_disk(tmp_path: Path) -> None:
    """The topic is an ordinary one: whoever reads it decodes it as Kafka's tools do."""
    with running(tmp_path, "log") as broker:
        create_topic(broker)
        client = consumer(broker)
        commit(client, 5)
        client.close()
        reader = consumer(broker, "reader")
        topics = reader.list_topics("__consumer_offsets", timeout=30).topics
        partitions = topics["__consumer_offsets"].partitions
        reader.assign([ck.TopicPartition("__consumer_offsets", index, 0) for index in partitions])
        record = next(filter(None, iter(lambda: reader.poll(5), ...)))
        value = record.value()
        assert value is not None
        assert record.key() == b"\0\1\0\1g\0\1t\0\0\0\0"
        assert value[:10] == b"\0\4" + (5).to_bytes(8)
        reader.close()
