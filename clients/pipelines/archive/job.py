"""The archive as a pipeline: from topics to Parquet files."""

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from ...blocking.admin import Admin
from ...spark.schema import source_schema
from ..config import ArchiveConfig
from ..progress import follow
from ..records import stream
from ..run import Mode, PipelineRun, Tally
from .archiver import Archiver
from .compaction import Compactor
from .log import ArchiveError, ArchiveLog
from .staging import Staging
from .storage import Storage


def run_archive(spark: SparkSession, config: ArchiveConfig, run: PipelineRun) -> list[Tally]:
    """Archive; raises Spark's errors and :class:`~.log.ArchiveError`."""
    storage = Storage(spark, config.path)
    log = ArchiveLog(storage)
    staging = Staging(spark, storage, config.compression)
    compactor = Compactor(spark, storage, log, staging, config.compaction)
    security = config.security.security()
    with Admin(config.bootstrap, client_id="qbus-archive", security=security) as admin:

        def topic_ids(topics: Iterable[str]) -> Mapping[str, str]:
            found = admin.describe_topics(topics)
            return {str(name): str(topic.topic_id) for name, topic in found.items()}

        archiver = Archiver(log, staging, topic_ids, config.time_zone)

        def archive(batch: DataFrame, _: int) -> None:
            archiver.add(batch)
            if config.compaction.enabled:
                compactor.compact()
                compactor.clean()

        tallies = _stream(spark, config, run, archive, storage.root)
    if run.mode is Mode.ONCE and config.compaction.enabled:
        _compact(compactor, run)
    return tallies


def _stream(
    spark: SparkSession,
    config: ArchiveConfig,
    run: PipelineRun,
    archive: Callable[[DataFrame, int], None],
    root: str,
) -> list[Tally]:
    place = config.checkpoint or f"{root}/_checkpoint"
    run.watcher.note(f"The checkpoint is in {place}.")
    fields = source_schema(include_headers=config.headers).fields
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    writer = (
        stream(spark, config, columns)
        .writeStream.foreachBatch(archive)
        .queryName(config.name or "archive")
        .option("checkpointLocation", place)
    )
    if run.mode is Mode.ONCE:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.interval} milliseconds")
    return follow([writer.start()], run.watcher)


def compact_archive(spark: SparkSession, config: ArchiveConfig, run: PipelineRun) -> int:
    """Merge the small files of an existing archive, and clean up; return how many were replaced.

    Raises Spark's errors and :class:`~.log.ArchiveError`.
    """
    storage = Storage(spark, config.path)
    staging = Staging(spark, storage, config.compression)
    log = ArchiveLog(storage)
    if log.snapshot.version < 0:
        raise ArchiveError(f"there is no archive at {config.path}")
    return _compact(Compactor(spark, storage, log, staging, config.compaction), run)


def _compact(compactor: Compactor, run: PipelineRun) -> int:
    if replaced := compactor.compact(at_least=2):
        run.watcher.note(f"Compacted {replaced:,} files.")
    compactor.clean()
    return replaced
