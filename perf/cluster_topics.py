"""1,000 replicated topics: created, described, without one broker, and with it again."""

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from perf.cluster import memory_per_broker
from perf.report import Figure
from perf.servers import MEMORY, Cluster, both_clusters
from tests.support.cluster_view import View
from tests.support.waiting import wait_until

TOPICS, PARTITIONS = 1000, 3
_AT_ONCE = 100
_PATIENCE = 300.0
_NODE = 2


def run(rounds: int, scale: float) -> list[Figure]:
    """Each with 3 partitions of 3 replicas; one broker is killed, and one stopped as it should."""
    count = max(int(TOPICS * scale), 1)
    what = f"{count} topics x {PARTITIONS} partitions"
    times = [
        Figure(f"{what}: {name}", "s", lower_is_better=True)
        for name in (
            "create",
            "describe",
            "others lead after a broker was killed",
            "all in sync after it was started",
            "controlled shutdown of a broker",
            "all in sync after it was started again",
        )
    ]
    memory = Figure(f"memory per broker with {what}", "MB", lower_is_better=True)
    for _ in range(rounds):
        with both_clusters(MEMORY) as clusters:
            for cluster in clusters:
                for figure, seconds in zip(times, _measure(cluster, count), strict=True):
                    figure.add(cluster.name, seconds)
                memory.add(cluster.name, memory_per_broker(cluster))
    return [*times, memory]


def _measure(cluster: Cluster, count: int) -> list[float]:
    names = [f"many-{number:04d}" for number in range(count)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    view = View(cluster.brokers)
    broker = cluster.brokers[_NODE]

    def be_whole() -> None:
        _wait(lambda: view.are_whole(names, PARTITIONS), "replicas in sync")

    def fail_over() -> None:
        broker.kill()
        _wait(lambda: view.are_led(names, PARTITIONS, without=_NODE), "other leaders")

    def come_back() -> None:
        broker.start(wait=False)
        be_whole()

    created = _timed(lambda: _create(admin, names))
    be_whole()
    return [
        created,
        _timed(lambda: admin.list_topics(timeout=_PATIENCE)),
        _timed(fail_over),
        _timed(come_back),
        _timed(broker.stop),
        _timed(come_back),
    ]


def _create(admin: AdminClient, names: list[str]) -> None:
    for first in range(0, len(names), _AT_ONCE):
        topics = [NewTopic(name, PARTITIONS, 3) for name in names[first : first + _AT_ONCE]]
        for future in admin.create_topics(topics, request_timeout=_PATIENCE).values():
            future.result(_PATIENCE)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _wait(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, _PATIENCE, pause=0.25)
