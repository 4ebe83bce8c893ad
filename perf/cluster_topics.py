"""1,000 replicated topics: created, described, without one broker, and with it again."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from perf import quiet
from perf.cluster import memory_per_broker
from perf.report import Figure
from perf.servers import MEMORY, Cluster, both_clusters
from perf.topics import PARTITIONS, PATIENCE, TOPICS, timed, wait
from tests.support.cluster_view import View

_AT_ONCE = 100
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
    admin = AdminClient(quiet.at(cluster.bootstrap))
    view = View(cluster.brokers)
    broker = cluster.brokers[_NODE]

    def be_whole() -> None:
        wait(lambda: view.are_whole(names, PARTITIONS), "replicas in sync")

    def fail_over() -> None:
        broker.kill()
        wait(lambda: view.are_led(names, PARTITIONS, without=_NODE), "other leaders")

    def come_back() -> None:
        broker.start(wait=False)
        be_whole()

    created = timed(lambda: _create(admin, names))
    be_whole()
    return [
        created,
        timed(lambda: admin.list_topics(timeout=PATIENCE)),
        timed(fail_over),
        timed(come_back),
        timed(broker.stop),
        timed(come_back),
    ]


def _create(admin: AdminClient, names: list[str]) -> None:
    for first in range(0, len(names), _AT_ONCE):
        topics = [NewTopic(name, PARTITIONS, 3) for name in names[first : first + _AT_ONCE]]
        for future in admin.create_topics(topics, request_timeout=PATIENCE).values():
            future.result(PATIENCE)
