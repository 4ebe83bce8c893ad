"""The two sides of an audit as data frames with the same columns and names of topics."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from qbus.errors import QbusError
from qbus.security.table import UNPROTECTED, SecurityTable

from ...blocking.admin import Admin
from ...spark.cluster_options import security_options
from ...spark.schema import source_schema
from ...types import EARLIEST, LATEST, TopicPartition
from ..archive.layout import read_archive
from ..archive.log import ArchiveLog
from ..archive.storage import Storage
from ..config import AuditConfig, Source

Extents = Mapping[TopicPartition, tuple[int, int]]
"""The bounds of each partition: its first offset, and the one after its last."""


class NothingToAudit(QbusError):  # noqa: N818 - what happened
    """There is nothing to compare; the message says what is missing or different."""


@dataclass(frozen=True, slots=True)
class AuditedCluster:
    """A cluster whose topics are compared."""

    bootstrap: str
    security: SecurityTable = UNPROTECTED

    def _admin(self) -> Admin:
        security = self.security.security()
        return Admin(self.bootstrap, client_id="qbus-audit", security=security)

    def topics(self, source: Source) -> list[str]:
        """The topics that a configuration selects; raises :class:`NothingToAudit`."""
        with self._admin() as admin:
            there = {topic.name: topic for topic in admin.list_topics(internal=True)}
        if source.pattern:
            found = [
                name
                for name, topic in there.items()
                if re.fullmatch(source.pattern, name) and not topic.is_internal
            ]
        else:
            found = [name for name in source.topics if name in there]
            if missing := sorted(set(source.topics) - set(found)):
                raise NothingToAudit(f"there is no topic {missing[0]} at {self.bootstrap}")
        if not found:
            raise NothingToAudit(f"no topic at {self.bootstrap} matches {source.pattern!r}")
        return sorted(found)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of existing topics."""
        with self._admin() as admin:
            found = admin.describe_topics(list(topics))
        return {str(name): str(topic.topic_id) for name, topic in found.items()}

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """The bounds of each partition of the topics; raises :class:`NothingToAudit`."""
        with self._admin() as admin:
            wanted = list(topics)
            there = {topic.name for topic in admin.list_topics(internal=True)}
            if missing := sorted(set(wanted) - there):
                raise NothingToAudit(f"there is no topic {missing[0]} at {self.bootstrap}")
            partitions = [
                TopicPartition(str(name), partition.index)
                for name, topic in admin.describe_topics(wanted).items()
                for partition in topic.partitions
            ]
            begins = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
            ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {
            partition: (begins[partition].offset, ends[partition].offset)
            for partition in partitions
        }


def offsets_json(extents: Extents, at: int) -> str:
    """Positions in the JSON of the source's options; ``at``: 0 for the starts, 1 for the ends."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), extent in sorted(extents.items()):
        found.setdefault(topic, {})[str(partition)] = extent[at]
    return json.dumps(found)


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def of_archive(spark: SparkSession, path: str, topic_ids: Mapping[str, str]) -> DataFrame:
    """The current content of an archive.

    Raises :class:`NothingToAudit` if there is no archive, or if its topics were deleted and created
    again; :class:`~..archive.log.ArchiveError` if it cannot be read.
    """
    snapshot = ArchiveLog(Storage(spark, path)).snapshot
    if snapshot.version < 0:
        raise NothingToAudit(f"there is no archive at {path}")
    archived = snapshot.topic_ids()
    for topic, topic_id in sorted(topic_ids.items()):
        if archived.get(topic, topic_id) != topic_id:
            raise NothingToAudit(
                f"topic {topic} was deleted and created again since it was archived at {path}: the"
                " archive belongs to the deleted topic"
            )
    return read_archive(spark, path).select(*COLUMNS)


def of_cluster(
    spark: SparkSession, cluster: AuditedCluster, extents: Extents, options: dict[str, str]
) -> DataFrame:
    """The records of a cluster within bounds."""
    topics = sorted({partition.topic for partition in extents})
    reader = spark.read.format("qbus").schema(source_schema(include_headers=True))
    return (
        reader.options(**options)
        .options(
            **{
                "qbus.bootstrap": cluster.bootstrap,
                **security_options(cluster.security),
                "subscribe": ",".join(topics),
                "startingOffsets": offsets_json(extents, 0),
                "endingOffsets": offsets_json(extents, 1),
            }
        )
        .load()
        .select(*COLUMNS)
    )


def within(records: DataFrame, extents: Extents) -> DataFrame:
    """Records of these partitions from their first offsets on."""
    rows = [(*partition, begin) for partition, (begin, _) in extents.items()]
    schema = "topic string, partition int, begin bigint"
    begins = sql.broadcast(records.sparkSession.createDataFrame(rows, schema))
    joined = records.join(begins, ["topic", "partition"])
    return joined.where("offset >= begin").select(*COLUMNS)


def renamed(records: DataFrame, config: AuditConfig) -> DataFrame:
    """Records of the copy, with the topic names of the original."""
    name = sql.col("topic")
    for original, there in config.copy.topics:
        name = sql.when(sql.col("topic") == there, sql.lit(original)).otherwise(name)
    return records.withColumn("topic", name)


def in_time(records: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    """Records with a timestamp from ``since`` on and before ``until``."""
    if since is not None:
        records = records.where(sql.col("timestamp") >= sql.lit(since))
    if until is not None:
        records = records.where(sql.col("timestamp") < sql.lit(until))
    return records


def aligned(left: Extents, right: Extents) -> tuple[Extents, Extents]:
    """The bounds to read of both sides: from the later start, each to its own end.

    Records that retention has deleted on one side are not compared.
    """
    begins = {
        partition: max(side[partition][0] for side in (left, right) if partition in side)
        for partition in left.keys() | right.keys()
    }

    def cut(side: Extents) -> dict[TopicPartition, tuple[int, int]]:
        return {
            partition: (min(begins[partition], end), end) for partition, (_, end) in side.items()
        }

    return cut(left), cut(right)
