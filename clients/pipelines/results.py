"""Where the rows go that a pipeline computes: a topic, Parquet files, or the console."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from qbus.errors import ConfigError

from .archive.storage import Storage
from .config import Output, Streaming
from .run import Mode, PipelineRun
from .times import written

_AT_A_TIME = 1000


@contextmanager
def checkpoint(config: Streaming, output: Output, run: PipelineRun) -> Iterator[str]:
    """The directory that the checkpoints of the queries are in, each below its name.

    It is temporary where results go to the console and no other was chosen.

    Raises :class:`~qbus.errors.ConfigError` where one has to be chosen.
    """
    if config.checkpoint:
        yield config.checkpoint
    elif output.path:
        yield f"{output.path}/_checkpoint"
    elif not output.topic:
        if run.mode is Mode.ONCE:
            run.watcher.note("Windows that are not over yet are not shown; with --batch they are.")
        with tempfile.TemporaryDirectory(prefix="qbus-", ignore_cleanup_errors=True) as directory:
            yield directory
    elif run.state:
        yield f"{run.state}/{config.name or output.topic}"
    else:
        raise ConfigError("checkpoint is missing: expected a directory, or a URL that Spark takes")


def write_stream(
    rows: DataFrame,
    name: str,
    key: str,
    config: Streaming,
    output: Output,
    run: PipelineRun,
    place: str,
) -> StreamingQuery:
    """Start a query that writes rows as they are complete, each once.

    name: what the query is called. key: the column that becomes records' key. place: where the
    checkpoints are.
    """
    if output.topic:
        writer = _messages(rows, key).writeStream.format("qbus").options(**_sink(config, output))
    elif output.path:
        writer = rows.writeStream.format("parquet").option("path", f"{output.path}/{name}")
    else:
        writer = rows.writeStream.foreachBatch(lambda batch, _: _show(batch, run))
    writer = writer.queryName(name).option("checkpointLocation", f"{place}/{name}")
    if run.mode is Mode.ONCE:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.interval} milliseconds").start()


def write_batch(
    rows: DataFrame, name: str, key: str, config: Streaming, output: Output, run: PipelineRun
) -> None:
    """Write all rows, now; raises :class:`~qbus.errors.ConfigError` where there are some."""
    if output.topic:
        _messages(rows, key).write.format("qbus").options(**_sink(config, output)).mode(
            "append"
        ).save()
    elif output.path:
        place = f"{output.path}/{name}"
        if Storage(rows.sparkSession, place).exists():
            raise ConfigError(
                f"output.path = {output.path!r}: {place} has results already, which would be there"
                " twice: choose another path, or delete them"
            )
        rows.write.parquet(place)
    else:
        _show(rows.orderBy("window_start"), run)


def _messages(rows: DataFrame, key: str) -> DataFrame:
    return rows.select(
        sql.col(key).cast("string").alias("key"),
        sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
    )


def _sink(config: Streaming, output: Output) -> dict[str, str]:
    own = {"qbus.bootstrap": output.bootstrap or config.bootstrap, "topic": output.topic}
    return {**own, **dict(output.options)}


def _show(rows: DataFrame, run: PipelineRun) -> None:
    some: list[dict[str, object]] = []
    for row in rows.toLocalIterator():
        fields = row.asDict(recursive=True)
        some.append({name: _shown(value) for name, value in fields.items()})
        if len(some) == _AT_A_TIME:
            run.watcher.rows(some)
            some = []
    if some:
        run.watcher.rows(some)


def _shown(value: object) -> object:
    return written(value) if isinstance(value, datetime) else value
