"""Topics created, grown and deleted by the thousand: in one request, one after another, 20 at once.

Kafka answers when its controller has decided, and makes the logs afterwards; Qbus does that with
many, too. So beside the time to the answers stands the time until every partition has acknowledged
a record with acks=all: until every replica has its log.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count as counter

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from perf import quiet
from perf.report import Figure
from perf.servers import MEMORY, both, both_clusters
from tests.support.cluster_view import View
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

TOPICS, PARTITIONS, MORE = 1000, 3, 6
SINGLE = 5  # one of so many topics is created by a request of its own
CLIENTS = 20
PATIENCE = 300.0

_runs = counter()

_TOGETHER = (
    "create, one request",
    "create, one request: until each partition has acknowledged a record",
    "3 more partitions each, one request",
    "3 more partitions each: until each partition has acknowledged a record",
    "delete, one request",
)
_SINGLY = (
    "create, one after another",
    "delete, one after another",
    f"create, {CLIENTS} clients at once",
    f"create, {CLIENTS} clients at once: until each partition has acknowledged a record",
    f"delete, {CLIENTS} clients at once",
)


def run(rounds: int, scale: float) -> list[Figure]:
    """The same on three brokers with three replicas, and on one; after a tenth as a warm-up."""
    topics = max(int(TOPICS * scale), SINGLE)
    figures: list[Figure] = []
    for brokers, where in ((3, "three brokers"), (1, "one broker")):
        forms = [(topics, form) for form in _TOGETHER]
        forms += [(topics // SINGLE, form) for form in _SINGLY]
        some = [
            Figure(f"{where}, {count} x {PARTITIONS}: {form}", "s", lower_is_better=True)
            for count, form in forms
        ]
        for _ in range(rounds):
            _measure(brokers, topics, some)
        figures += some
    return figures


def _measure(brokers: int, topics: int, figures: list[Figure]) -> None:
    if brokers == 1:
        with both(MEMORY) as servers:
            for server in servers:
                _fill(figures, server.name, server.bootstrap, {1: server}, topics)
    else:
        with both_clusters(MEMORY) as clusters:
            for cluster in clusters:
                _fill(figures, cluster.name, cluster.bootstrap, cluster.brokers, topics)


def _fill(
    figures: list[Figure],
    name: str,
    bootstrap: str,
    brokers: Mapping[int, ServerProcess],
    topics: int,
) -> None:
    _TopicLoad(bootstrap, brokers, max(topics // 10, SINGLE)).run()  # warms it up
    times = _TopicLoad(bootstrap, brokers, topics).run()
    for figure, seconds in zip(figures, times, strict=True):
        figure.add(name, seconds)


class _TopicLoad:
    """One server's topics."""

    def __init__(self, bootstrap: str, brokers: Mapping[int, ServerProcess], topics: int) -> None:
        self._names = _new_names(topics)
        self._some = _new_names(topics // SINGLE)
        self._replicas = len(brokers)
        self._view = View(brokers)
        self._bootstrap = bootstrap
        config = {**quiet.at(bootstrap), "socket.timeout.ms": int(PATIENCE * 1000)}
        self._admins = [AdminClient(config) for _ in range(CLIENTS)]
        for admin in self._admins:
            admin.list_topics(timeout=PATIENCE)

    def run(self) -> list[float]:
        """The seconds of each form, in their order."""
        first, names, some = self._admins[0], self._names, self._some
        together = timed(lambda: self._create(first, names))
        served = timed(lambda: self._write(names))
        grown = timed(lambda: self._grow(first, names))
        served_more = timed(lambda: self._write(names, MORE))  # else logs are made while others go
        deleted = timed(lambda: self._delete(first, names))
        self._be_gone(names)
        singly = timed(lambda: self._singly(self._create))
        self._write(some)
        deleted_singly = timed(lambda: self._singly(self._delete))
        self._be_gone(some)
        some = self._some = _new_names(len(some))
        at_once = timed(lambda: self._by_many(self._create))
        served_at_once = timed(lambda: self._write(some))
        deleted_at_once = timed(lambda: self._by_many(self._delete))
        self._be_gone(some)
        return [
            together,
            together + served,
            grown,
            grown + served_more,
            deleted,
            singly,
            deleted_singly,
            at_once,
            at_once + served_at_once,
            deleted_at_once,
        ]

    def _write(self, names: Iterable[str], partitions: int = PARTITIONS) -> None:
        """A record to each partition; once more to those that the broker asked did not know yet."""
        places = [(name, partition) for name in names for partition in range(partitions)]
        deadline = time.monotonic() + PATIENCE
        while places:
            assert time.monotonic() < deadline, places[:3]
            places = self._unknown(places)

    def _unknown(self, places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Send a record to each; return those that a fresh client was not told of."""
        unknown: list[tuple[str, int]] = []
        failed: list[object] = []
        producer = Producer({**quiet.at(self._bootstrap), "acks": "all", "linger.ms": 0})

        def heard(error: KafkaError | None, message: Message) -> None:
            if error is None:
                return
            if error.code() == KafkaError._UNKNOWN_PARTITION:
                unknown.append((str(message.topic()), int(message.partition() or 0)))
            else:
                failed.append(error)

        for name, partition in places:
            producer.produce(name, b"x", partition=partition, on_delivery=heard)
        assert not producer.flush(PATIENCE)
        assert not failed, failed[:3]
        return unknown

    def _create(self, admin: AdminClient, names: Iterable[str]) -> None:
        topics = [NewTopic(name, PARTITIONS, self._replicas) for name in names]
        _finish(admin.create_topics(topics, request_timeout=PATIENCE))

    def _grow(self, admin: AdminClient, names: Iterable[str]) -> None:
        growths = [NewPartitions(name, MORE) for name in names]
        _finish(admin.create_partitions(growths, request_timeout=PATIENCE))

    def _delete(self, admin: AdminClient, names: Iterable[str]) -> None:
        _finish(admin.delete_topics(list(names), request_timeout=PATIENCE))

    def _singly(self, action: Callable[[AdminClient, Iterable[str]], None]) -> None:
        for name in self._some:
            action(self._admins[0], [name])

    def _by_many(self, action: Callable[[AdminClient, Iterable[str]], None]) -> None:
        def one_client(number: int) -> None:
            for name in self._some[number::CLIENTS]:
                action(self._admins[number], [name])

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(one_client, range(CLIENTS)))

    def _be_gone(self, names: Iterable[str]) -> None:
        wait(lambda: not self._view.topics(names), "the topics to be gone")


def _new_names(count: int) -> list[str]:
    """Names that no topic ever had."""
    run = next(_runs)
    return [f"topics-{run}-{number:04d}" for number in range(count)]


def _finish(futures: Mapping[str, "Future[None]"]) -> None:
    for future in futures.values():
        future.result(PATIENCE)


def timed(action: Callable[[], object]) -> float:
    """The seconds that ``action`` takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition`` holds, which is looked at four times a second."""
    wait_until(condition, what, PATIENCE, pause=0.25)
