"""Topics created and deleted by the hundred while brokers are killed: whole, or not there."""

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import zookeeper_process
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_view import View
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.integration]

PARTITIONS = 3
AT_ONCE = 100
_DONE = {None, KafkaError.TOPIC_ALREADY_EXISTS}
_GONE = {None, KafkaError.UNKNOWN_TOPIC_OR_PART}

Brokers = Mapping[int, BrokerProcess]


@contextmanager
def one_broker(directory: Path) -> Iterator[Brokers]:
    with BrokerProcess(directory / "node-1") as broker:
        yield {1: broker}


@contextmanager
def three_brokers(directory: Path) -> Iterator[Brokers]:
    reason = zookeeper_process.missing()
    if reason is not None:
        pytest.skip(reason)
    options = "-o", "zookeeper.session.timeout.ms=3000"
    with QbusCluster(directory, *options) as cluster:
        yield cluster.brokers


def admin_of(brokers: Brokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(b.bootstrap for b in brokers.values())})


def begin(admin: AdminClient, names: list[str], replicas: int) -> dict[str, "Future[None]"]:
    """One request for half of the topics, and one for each of some others."""
    half = len(names) // 2
    requests = [names[:half], *([name] for name in names[half:])]
    futures: dict[str, Future[None]] = {}
    for some in requests:
        topics = [NewTopic(name, PARTITIONS, replicas) for name in some]
        futures |= admin.create_topics(topics, request_timeout=20)
    return futures


def answered(futures: Mapping[str, "Future[None]"], answers: Collection[int | None]) -> set[str]:
    """The names whose answer is one of these; what nobody answered may be so or so."""
    found = set()
    for name, future in futures.items():
        try:
            future.result(60)
            code = None
        except KafkaException as error:
            code = error.args[0].code()
        if code in answers:
            found.add(name)
    return found


def check(brokers: Brokers, names: list[str], created: set[str]) -> set[str]:
    """Whatever there is of ``names`` is whole and takes records; those that there are."""
    view = View(brokers)
    wait_until(view.are_all_there, "all brokers", 60)
    there = set(view.topics(names))
    assert created <= there, "a creation that was answered is lost"
    wait_until(lambda: view.are_whole(there, PARTITIONS), "whole topics", 60)
    failed: list[KafkaError] = []

    def heard(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": ",".join(b.bootstrap for b in brokers.values()), "acks": "all"}
    )
    for name in there:
        for partition in range(PARTITIONS):
            producer.produce(name, b"x", partition=partition, on_delivery=heard)
    assert producer.flush(60) == 0
    assert not failed
    for broker in brokers.values():
        on_disk = {path.name.rpartition("-")[0] for path in broker.data_dir.iterdir()}
        assert on_disk & set(names) == there, "logs are those of the topics that there are"
    return there


@contextmanager
def at_random(
    made: AbstractContextManager[Brokers],
) -> Iterator[tuple[random.Random, Brokers, AdminClient]]:
    """Brokers that run, a client that is connected, and a source of chance whose seed is told."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with made as brokers:
        admin = admin_of(brokers)
        admin.list_topics(timeout=30)
        yield random.Random(seed), brokers, admin


@pytest.mark.parametrize("make", [one_broker, three_brokers])
def test_topics_are_whole_or_not_there_after_kills(
    tmp_path: Path, make: Callable[[Path], AbstractContextManager[Brokers]]
) -> None:
    with at_random(make(tmp_path)) as (chance, brokers, admin):
        created_at_all = 0
        for turn in range(4):
            names = [f"turn-{turn}-{number:03}" for number in range(AT_ONCE)]
            futures = begin(admin, names, len(brokers))
            time.sleep(chance.uniform(0.0, 0.6))
            victim = chance.choice(list(brokers.values()))
            victim.kill()
            victim.start()
            there = check(brokers, names, answered(futures, _DONE))
            created_at_all += len(there)
            if there:
                deleted = admin.delete_topics(sorted(there), request_timeout=20)
                time.sleep(chance.uniform(0.0, 0.2))
                victim.kill()
                victim.start()
                wait_until(View(brokers).are_all_there, "all brokers", 60)
                gone = answered(deleted, _GONE)
                assert not gone & set(View(brokers).topics(names)), "a deletion is lost"
        assert created_at_all


def logs_of(broker: BrokerProcess, names: Collection[str]) -> set[str]:
    """The directories that topics have on a broker's disk, renamed ones left out."""
    found = (path.name for path in broker.data_dir.iterdir() if path.is_dir())
    return {name for name in found if name.rpartition("-")[0] in set(names)}


@pytest.mark.parametrize(
    "make", [one_broker, pytest.param(three_brokers, marks=pytest.mark.nightly)]
)
def test_a_crash_after_the_answer_leaves_nothing_of_deleted_topics(
    tmp_path: Path, make: Callable[[Path], AbstractContextManager[Brokers]]
) -> None:
    """Killed at any time until all is removed, and namesakes were created before or after that."""
    with at_random(make(tmp_path)) as (chance, brokers, admin):
        names = [f"gone-{number:03}" for number in range(AT_ONCE)]
        for _ in range(2):
            created = answered(begin(admin, names, len(brokers)), _DONE)
            assert created == set(names)
            assert check(brokers, names, created) == created  # a record is in each
            deleted = admin.delete_topics(names, request_timeout=20)
            assert answered(deleted, _GONE) == set(names)
            namesakes = names[:10] if chance.random() < 0.7 else []
            again = begin(admin, namesakes, len(brokers)) if namesakes else {}
            assert answered(again, _DONE) == set(namesakes)
            time.sleep(chance.uniform(0.0, 0.5))
            for broker in brokers.values():
                broker.kill()
            for broker in brokers.values():
                broker.start()
            wait_until(View(brokers).are_all_there, "all brokers", 60)
            whole = partial(View(brokers).are_whole, namesakes, PARTITIONS)
            wait_until(whole, "namesakes", 60)
            ends = ends_of(brokers, namesakes)
            assert set(ends) <= {0}, "a namesake has a record of the deleted topic"
            only_logs(brokers, names, namesakes)
            if namesakes:
                answered(admin.delete_topics(namesakes, request_timeout=20), _GONE)
                only_logs(brokers, names, [])


def only_logs(brokers: Brokers, names: Collection[str], left: Collection[str]) -> None:
    """Wait until each broker has logs of ``left`` alone, of all ``names``."""
    wanted = {f"{name}-{index}" for name in left for index in range(PARTITIONS)}

    def are_gone() -> bool:
        return all(logs_of(broker, names) == wanted for broker in brokers.values())

    wait_until(are_gone, "no logs but those of topics that there are", 30)


def ends_of(brokers: Brokers, names: Collection[str]) -> list[int]:
    """Where the partitions of some topics end."""
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(b.bootstrap for b in brokers.values()),
            "group.id": "ends",
        }
    )
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(name, index), timeout=30)[1]
            for name in names
            for index in range(PARTITIONS)
        ]
    finally:
        consumer.close()
