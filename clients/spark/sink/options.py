"""The options of the sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from qbus.names import OWN_TOPICS_PREFIX
from qbus.records import Compression

from ..cluster_options import CLUSTER_OPTIONS, ClusterOptions
from ..options import OptionError, Options

SINK_OPTIONS = (
    *CLUSTER_OPTIONS,
    "topic",
    "includeHeaders",
    "checkpointLocation",
    "queryName",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.linger.ms",
    "qbus.exactly.once",
    "qbus.staging.topic",
    "qbus.transactions",
    "kafka.transaction.timeout.ms",
    "qbus.query.id",
    "qbus.batch.id",
)
"""The names of all options of the sink."""

STAGING_TOPIC = f"{OWN_TOPICS_PREFIX}spark_staging"
_CODECS = tuple(codec.name.lower() for codec in Compression)
_MIB = 1024 * 1024
_LONGEST_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms."""


@dataclass(frozen=True)
class ProducerSettings:
    """How a task sends records; tasks of one process with equal settings share a producer.

    batch_bytes: records gathered for one record batch, before compression.
    buffer_bytes: the most bytes of records that wait to be sent.
    delivery_timeout_ms: the most time to deliver a record.
    """

    acks: str
    compression: str
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_ms: int

    @classmethod
    def of(cls, options: Options, *, is_exactly_once: bool) -> Self:
        """Read the options; raises :class:`~qbus.clients.spark.options.OptionError`."""
        options.milliseconds("kafka.linger.ms", 0)  # checked but unused: rows come in bulk
        return cls(
            acks=_acks(options, is_exactly_once),
            compression=options.choice("kafka.compression.type", "none", _CODECS),
            batch_bytes=options.integer("kafka.batch.size", 1_000_000, minimum=1),
            buffer_bytes=options.integer("kafka.buffer.memory", 64 * _MIB, minimum=1),
            delivery_timeout_ms=options.integer("kafka.delivery.timeout.ms", 120_000, minimum=1),
        )


@dataclass(frozen=True)
class SinkOptions:
    """Where rows are written, and how.

    topic: the topic of all rows; None: each row has its own.
    is_exactly_once: stage rows first, and publish them when the micro-batch is complete.
    transaction_timeout_ms: write rows to their topics at once, in transactions that are committed
        when the micro-batch is complete, and may be open for so long; None: without transactions.
    query_id, batch_id: identify a batch write, so that a repeated one is published once.
    """

    cluster: ClusterOptions
    producer: ProducerSettings
    topic: str | None
    is_exactly_once: bool
    staging_topic: str
    query_id: str | None
    batch_id: int | None
    transaction_timeout_ms: int | None = None

    @property
    def is_staged(self) -> bool:
        """Whether rows go to the staging topic first."""
        return self.is_exactly_once and self.transaction_timeout_ms is None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "SinkOptions":
        """Read the options; raises :class:`~qbus.clients.spark.options.OptionError`."""
        options = Options(given)
        options.check(SINK_OPTIONS)
        options.boolean("includeHeaders", True)
        is_exactly_once = options.boolean("qbus.exactly.once", True)
        query_id, batch_id = _identity(options)
        return cls(
            cluster=ClusterOptions.of(options, "qbus-spark-sink"),
            producer=ProducerSettings.of(options, is_exactly_once=is_exactly_once),
            topic=options.required("topic", "name a topic") if "topic" in options else None,
            is_exactly_once=is_exactly_once,
            staging_topic=options.text("qbus.staging.topic") or STAGING_TOPIC,
            query_id=query_id,
            batch_id=batch_id,
            transaction_timeout_ms=_transactions(options, is_exactly_once),
        )


def _transactions(options: Options, is_exactly_once: bool) -> int | None:
    timeout_ms = options.integer("kafka.transaction.timeout.ms", _LONGEST_MS, minimum=1)
    if not options.boolean("qbus.transactions", False):
        return None
    if not is_exactly_once:
        remedy = "qbus.exactly.once=false writes without transactions: leave one of them out"
        raise OptionError("qbus.transactions", options.text("qbus.transactions"), remedy)
    return timeout_ms


def _identity(options: Options) -> tuple[str | None, int | None]:
    query_id = options.text("qbus.query.id")
    batch_id = options.maybe_integer("qbus.batch.id")
    if query_id is not None and not query_id.strip():
        raise OptionError("qbus.query.id", query_id, "give the query a unique name")
    if (query_id is None) != (batch_id is None):
        given, missing = ("qbus.query.id", "qbus.batch.id")[:: 1 if batch_id is None else -1]
        raise OptionError(given, options.text(given), f"needs {missing}: give both, or none")
    return query_id, batch_id


def _acks(options: Options, is_exactly_once: bool) -> str:
    acks = options.choice("kafka.acks", "all", ["all", "-1", "0", "1"])
    if is_exactly_once and acks not in {"all", "-1"}:
        remedy = "exactly-once writes need all; or choose qbus.exactly.once=false"
        raise OptionError("kafka.acks", acks, remedy)
    return acks
