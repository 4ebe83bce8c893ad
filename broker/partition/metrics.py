"""The metrics of partitions, replication and disks."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from qbus.errors import ErrorCode

from ..log import DamagedBatches, DataDirectory
from ..metrics import BoundedNames, Metrics, Samples
from .isr_changes import IsrChanges
from .partition import Partition
from .purgatory import Purgatory
from .registry import PartitionRegistry, Traffic

_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
_MOST_DAMAGE = 100  # ranges that are named


def register_metrics(
    metrics: Metrics,
    registry: PartitionRegistry,
    isr_changes: IsrChanges,
    directories: Sequence[DataDirectory],
    purgatory: Purgatory,
) -> None:
    """Register what there is to know of this broker's partitions."""
    _register_partitions(metrics, registry)
    _register_topics(metrics, registry)
    _register_replication(metrics, registry, isr_changes)
    gauge = metrics.gauge
    gauge(
        "offline_data_directories",
        "Number of data directories that failed.",
        lambda: sum(directory.offline for directory in directories),
    )
    gauge(
        "full_data_directories",
        "Number of data directories without space for new records.",
        lambda: sum(directory.is_full for directory in directories),
    )
    gauge(
        "deleted_paths",
        "Number of deleted files and directories that wait for their removal from the disk.",
        lambda: sum(len(directory.shared.trash) for directory in directories),
    )
    gauge(
        "delayed_fetches",
        "Number of fetch requests that wait for records.",
        lambda: len(purgatory.fetches),
    )
    gauge(
        "delayed_produces",
        "Number of produce requests that wait for acknowledgement.",
        lambda: len(purgatory.produces),
    )


def _register_partitions(metrics: Metrics, registry: PartitionRegistry) -> None:
    gauge, counter, closed = metrics.gauge, metrics.counter, registry.closed_totals.all
    gauge("partitions", "Number of replicas on this broker.", lambda: sum(1 for _ in registry))
    gauge(
        "opening_partitions",
        "Number of replicas whose logs are still to be made.",
        lambda: registry.opening,
    )
    gauge(
        "deleting_partitions",
        "Number of replicas of deleted topics whose logs are still to be removed, without those in"
        " data directories that are offline.",
        lambda: registry.deleting,
    )
    gauge(
        "offline_partitions",
        "Number of replicas on this broker that a failed disk made unusable.",
        lambda: registry.failed + sum(p.error is _STORAGE_ERROR for p in registry),
    )
    gauge("log_bytes", "Size of all logs, in bytes.", lambda: sum(p.log.size for p in registry))
    gauge(
        "retention_blocked_partitions",
        "Number of replicas whose oldest segment retention.ms keeps because of a timestamp that is"
        " more than an hour in the future.",
        lambda: sum(p.log.is_retention_blocked for p in registry),
    )
    gauge(
        "corruptions",
        "Number of places where corrupt data was found; it is never served.",
        lambda: sum(len(p.log.corruptions) for p in registry),
    )
    metrics.gauges_by(
        ["topic", "partition", "offset"],
        "damaged_offsets",
        "Offsets from this one on whose batches cannot be read from the disk, for the first 100"
        " damaged ranges; 0 where a log is refused and how many are damaged is not known.",
        lambda: _damaged(registry),
    )
    gauge(
        "partition_transactions",
        "Open transactions in partitions that this broker leads, one for each partition.",
        lambda: sum(
            len(p.log.producers.open_transactions)
            for p in registry
            if p.is_leader and p.log.has_transactions
        ),
    )
    gauge(
        "unstable_records_max",
        "Largest number of records that wait for a transaction before them to end, in a partition"
        " that this broker leads: consumers of committed records do not get them yet.",
        lambda: max(
            (p.high_watermark - p.last_stable_offset for p in registry if p.is_leader), default=0
        ),
    )
    counter(
        "produced_bytes",
        "Bytes of record batches appended by producers.",
        lambda: closed.bytes_in + sum(p.bytes_in for p in registry),
    )
    counter(
        "fetched_bytes",
        "Bytes of record batches sent to consumers.",
        lambda: closed.bytes_out + sum(p.bytes_out for p in registry),
    )
    counter(
        "produced_messages",
        "Records appended by producers.",
        lambda: closed.messages_in + sum(p.messages_in for p in registry),
    )
    counter(
        "replicated_bytes",
        "Bytes of record batches sent to followers.",
        lambda: closed.replicated_bytes + sum(p.replicated_bytes for p in registry),
    )


def _damaged(registry: PartitionRegistry) -> Iterable[tuple[Sequence[str], float]]:
    found = (
        ((one.topic, str(one.index), str(bad.first_offset)), _count_of(bad))
        for one in registry
        for bad in one.log.damage
    )
    return list(islice(found, _MOST_DAMAGE))


def _count_of(bad: DamagedBatches) -> float:
    return max(bad.last_offset - bad.first_offset + 1, 0)


_BY_TOPIC: Sequence[tuple[str, str, Callable[[Traffic], int]]] = (
    ("topic_produced_bytes", "Bytes from producers, by topic.", lambda t: t.bytes_in),
    (
        "topic_produced_messages",
        "Records appended by producers, by topic.",
        lambda t: t.messages_in,
    ),
    ("topic_fetched_bytes", "Bytes sent to consumers, by topic.", lambda t: t.bytes_out),
)


def _register_topics(metrics: Metrics, registry: PartitionRegistry) -> None:
    names = BoundedNames()

    def by_topic(count: Callable[[Traffic], int]) -> Samples:
        def read() -> Iterable[tuple[Sequence[str], float]]:
            found = registry.traffic_by_topic()
            names.keep(found)
            sums: Counter[str] = Counter()
            for topic, traffic in sorted(found.items()):
                sums[names.label(topic)] += count(traffic)
            return [((label,), total) for label, total in sums.items()]

        return read

    for name, text, count in _BY_TOPIC:
        metrics.counters_by(["topic"], name, text, by_topic(count))


def _register_replication(
    metrics: Metrics, registry: PartitionRegistry, isr_changes: IsrChanges
) -> None:
    gauge, counter = metrics.gauge, metrics.counter

    def count(holds: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(holds(one) for one in registry if one.is_leader)

    gauge(
        "leader_partitions", "Number of partitions that this broker leads.", count(lambda _: True)
    )
    gauge(
        "under_replicated_partitions",
        "Number of partitions that this broker leads with replicas out of sync.",
        count(lambda p: len(p.isr) < p.replica_count),
    )
    gauge(
        "under_min_isr_partitions",
        "Number of led partitions with fewer in-sync replicas than min.insync.replicas.",
        count(lambda p: len(p.isr) < p.min_isr),
    )
    gauge(
        "at_min_isr_partitions",
        "Number of led partitions with exactly min.insync.replicas in-sync replicas.",
        count(lambda p: len(p.isr) == p.min_isr),
    )
    gauge(
        "follower_lag_max",
        "Largest follower lag, in records.",
        lambda: max((one.lag for one in registry), default=0),
    )
    counter(
        "isr_shrinks",
        "Number of times that in-sync replicas were removed.",
        lambda: isr_changes.shrinks,
    )
    counter(
        "isr_expands",
        "Number of times that in-sync replicas were added.",
        lambda: isr_changes.expands,
    )
