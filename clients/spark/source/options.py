"""The options of the source."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..cluster_options import CLUSTER_OPTIONS, ClusterOptions
from ..options import OptionError, Options
from .positions import ENDING_OPTIONS, STARTING_OPTIONS
from .subscription import SUBSCRIPTION_OPTIONS, Subscription

SOURCE_OPTIONS = (
    *CLUSTER_OPTIONS,
    *SUBSCRIPTION_OPTIONS,
    *STARTING_OPTIONS,
    *ENDING_OPTIONS,
    "includeHeaders",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafka.group.id",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.isolation.level",
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes",
    "qbus.prefetch.bytes",
    "qbus.rows.per.batch",
    "qbus.idle.wait",
)
"""The names of all options of the source."""

_MIB = 1024 * 1024


@dataclass(frozen=True)
class FetchOptions:
    """How a task reads its range. Times are in seconds.

    fail_on_data_loss: whether lost records stop the query; otherwise they are skipped.
    patience: how long a task waits for records that should exist.
    prefetch_bytes: the most fetched bytes that wait to be read.
    rows: the approximate number of records in one Arrow batch.
    """

    cluster: ClusterOptions
    fail_on_data_loss: bool
    patience: float
    read_committed: bool
    check_crcs: bool
    rack: str | None
    fetch_max_bytes: int
    partition_max_bytes: int
    prefetch_bytes: int
    rows: int

    @classmethod
    def of(cls, options: Options) -> "FetchOptions":
        """Read the options; raises :class:`OptionError`."""
        isolation = ("read_uncommitted", "read_committed")
        level = options.choice("kafka.isolation.level", isolation[0], isolation)
        return cls(
            cluster=ClusterOptions.of(options, "qbus-spark-source"),
            fail_on_data_loss=options.boolean("failOnDataLoss", True),
            patience=options.integer("kafkaConsumer.pollTimeoutMs", 120_000, minimum=1) / 1000,
            read_committed=level == "read_committed",
            check_crcs=options.boolean("kafka.check.crcs", True),
            rack=options.text("kafka.client.rack"),
            fetch_max_bytes=options.integer("kafka.fetch.max.bytes", 50 * _MIB, minimum=1),
            partition_max_bytes=options.integer(
                "kafka.max.partition.fetch.bytes", 8 * _MIB, minimum=1
            ),
            prefetch_bytes=options.integer("qbus.prefetch.bytes", 32 * _MIB, minimum=1),
            rows=options.integer("qbus.rows.per.batch", 100_000, minimum=1),
        )


@dataclass(frozen=True)
class SourceOptions:
    """What a query reads, and how it is planned. Times are in seconds.

    max_offsets, min_offsets: the most and the least records of a micro-batch; a smaller one waits
        for ``max_delay``.
    group: the consumer group to which a stream commits its offsets, for monitoring; None: one of
        its own, whose name begins with ``group_prefix``.
    idle_wait: how long a stream waits at the brokers for records before it reports none.
    """

    fetch: FetchOptions
    subscription: Subscription
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_records: int | None
    group: str | None
    group_prefix: str
    idle_wait: float

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "SourceOptions":
        """Read the options; raises :class:`OptionError`."""
        options = Options(given)
        options.check(SOURCE_OPTIONS)
        options.boolean("includeHeaders", False)
        least, most = "minOffsetsPerTrigger", "maxOffsetsPerTrigger"
        found = cls(
            fetch=FetchOptions.of(options),
            subscription=Subscription.of(options),
            max_offsets=options.maybe_integer(most, minimum=1),
            min_offsets=options.maybe_integer(least, minimum=1),
            max_delay=options.milliseconds("maxTriggerDelay", 15 * 60_000) / 1000,
            min_partitions=options.maybe_integer("minPartitions", minimum=1),
            max_records=options.maybe_integer("maxRecordsPerPartition", minimum=1),
            group=options.text("kafka.group.id"),
            group_prefix=options.text("groupIdPrefix") or "spark-qbus-source",
            idle_wait=options.milliseconds("qbus.idle.wait", 500) / 1000,
        )
        if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
            raise OptionError(least, found.min_offsets, f"it is more than {most}")
        return found
