"""What the broker's metrics say of its partitions."""

from collections.abc import Callable, Iterable

from qbus.errors import ErrorCode

from ..log import DataDirectory
from ..metrics import Metrics
from .isr_changes import IsrChanges
from .partition import Partition
from .purgatory import Purgatory
from .registry import PartitionRegistry

_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def show_partitions(metrics: Metrics, hosting: PartitionRegistry) -> None:
    """What is held here, and what became of it."""
    gauge, counter = metrics.gauge, metrics.counter
    gauge("partitions", "Partitions held here", lambda: sum(1 for _ in hosting))
    gauge(
        "offline_partitions",
        "Partitions that cannot be used because of their disk",
        lambda: hosting.failed + sum(p.error is _STORAGE_ERROR for p in hosting),
    )
    gauge("log_bytes", "Bytes of all logs", lambda: sum(p.log.size for p in hosting))
    gauge(
        "corruptions",
        "Places where corrupt data was found; it is never served",
        lambda: sum(len(p.log.corruptions) for p in hosting),
    )
    counter(
        "produced_bytes",
        "Bytes of batches appended",
        lambda: hosting.retired.bytes_in + sum(p.bytes_in for p in hosting),
    )
    counter(
        "fetched_bytes",
        "Bytes of batches sent to clients",
        lambda: hosting.retired.bytes_out + sum(p.bytes_out for p in hosting),
    )
    counter(
        "produced_messages",
        "Messages appended",
        lambda: hosting.retired.messages_in + sum(p.messages_in for p in hosting),
    )
    counter(
        "replicated_bytes",
        "Bytes of batches sent to followers",
        lambda: hosting.retired.replicated_bytes + sum(p.replicated_bytes for p in hosting),
    )


def show_disks(metrics: Metrics, directories: Iterable[DataDirectory]) -> None:
    """Which of them can be used."""
    metrics.gauge(
        "offline_data_directories",
        "Data directories that failed",
        lambda: sum(directory.offline for directory in directories),
    )
    metrics.gauge(
        "full_data_directories",
        "Data directories without room for more records",
        lambda: sum(directory.is_full for directory in directories),
    )


def show_waiting(metrics: Metrics, purgatory: Purgatory) -> None:
    """Requests that are not answered yet."""
    metrics.gauge(
        "delayed_fetches", "Fetches that wait for records", lambda: len(purgatory.fetches)
    )
    metrics.gauge(
        "delayed_produces",
        "Produce requests that wait for their acknowledgement",
        lambda: len(purgatory.produces),
    )


def show_replication(
    metrics: Metrics, partitions: Iterable[Partition], changes: IsrChanges
) -> None:
    """What is led here, and how well it is followed."""
    gauge, counter = metrics.gauge, metrics.counter

    def count(holds: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(holds(one) for one in partitions if one.is_leader)

    gauge("leader_partitions", "Partitions led here", count(lambda _: True))
    gauge(
        "under_replicated_partitions",
        "Partitions led here with replicas that are not in sync",
        count(lambda p: len(p.isr) < p.replica_count),
    )
    gauge(
        "under_min_isr_partitions",
        "Partitions with fewer in-sync replicas than min.insync.replicas",
        count(lambda p: len(p.isr) < p.min_isr),
    )
    gauge(
        "at_min_isr_partitions",
        "Partitions with just as many in-sync replicas as min.insync.replicas",
        count(lambda p: len(p.isr) == p.min_isr),
    )
    gauge(
        "follower_lag_max",
        "Messages that the follower of a partition led here lacks that lacks most",
        lambda: max((one.lag for one in partitions), default=0),
    )
    counter("isr_shrinks", "Replicas that fell out of sync, by changes", lambda: changes.shrinks)
    counter("isr_expands", "Replicas that came in sync, by changes", lambda: changes.expands)
