"""Records on three brokers each: what it takes to replicate them, and to read them."""

from itertools import count as counter

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, Cluster, both_clusters, cpu_seconds, resident_mb
from tests.support.cluster_view import View
from tests.support.waiting import wait_until

PARTITIONS = 3
SIZES = {100: 1_000_000, 1000: 200_000}
_PATIENCE = 120.0

_topics = counter()


def run(rounds: int, scale: float) -> list[Figure]:
    """Three partitions with three replicas each, acks=all, two in sync at least; librdkafka."""
    figures: list[Figure] = []
    idle = Figure("memory per broker, idle", "MB", lower_is_better=True)
    loaded = Figure("memory per broker after the load", "MB", lower_is_better=True)
    store = Figure("memory of the ZooKeeper that these brokers need", "MB", lower_is_better=True)
    with both_clusters(MEMORY) as clusters:
        for cluster in clusters:
            idle.add(cluster.name, memory_per_broker(cluster))
        for size, full in SIZES.items():
            figures += _measure(clusters, size, max(int(full * scale), 1000), rounds)
        for cluster in clusters:
            loaded.add(cluster.name, memory_per_broker(cluster))
            for zookeeper in getattr(cluster, "zookeepers", ()):
                store.add(cluster.name, resident_mb(zookeeper))
    return [*figures, idle, loaded, store]


def _measure(clusters: list[Cluster], size: int, count: int, rounds: int) -> list[Figure]:
    written = Figure(f"replicated produce {size} B", "MB/s")
    cpu = Figure(f"CPU of the brokers, replicated produce {size} B", "s", lower_is_better=True)
    taken = Figure(f"consume {size} B from three leaders", "MB/s")
    for turn in range(rounds + 1):
        for cluster in clusters:
            topic = f"cluster-{next(_topics)}"
            create_replicated(cluster, topic)
            before = cpu_of_brokers(cluster)
            load = {"topic": topic, "count": count}
            sent = rdkafka.run("produce", cluster.bootstrap, size=size, **load)
            used = cpu_of_brokers(cluster) - before
            seen = rdkafka.run("consume", cluster.bootstrap, partitions=PARTITIONS, **load)
            rdkafka.delete_topic(cluster.bootstrap, topic)
            if turn == 0:
                continue  # warms both up
            written.add(cluster.name, sent["mb_s"])
            cpu.add(cluster.name, used)
            taken.add(cluster.name, seen["mb_s"])
    return [written, cpu, taken]


def create_replicated(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic with three replicas, of which two must be in sync; wait until all are."""
    config = {"min.insync.replicas": "2"}
    rdkafka.create_topic(cluster.bootstrap, topic, partitions, replicas=3, **config)
    view = View(cluster.brokers)
    wait_until(lambda: view.are_whole([topic], partitions), f"the replicas of {topic}", _PATIENCE)


def memory_per_broker(cluster: Cluster) -> float:
    """Resident memory of a broker, the mean of all, in MB."""
    brokers = cluster.brokers.values()
    return sum(map(resident_mb, brokers)) / len(brokers)


def cpu_of_brokers(cluster: Cluster) -> float:
    """Processor time that all brokers have used, in seconds."""
    return sum(map(cpu_seconds, cluster.brokers.values()))
