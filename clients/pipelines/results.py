"""Writes the results of a pipeline to a topic, to Parquet files, or to the console."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from qbus.errors import ConfigError

from ..spark.cluster_options import security_options
from .archive.storage import Storage
from .config import Output, Streaming
from .run import Mode, PipelineRun
from .times import written

_AT_A_TIME = 1000


@contextmanager
def checkpoint(config: Streaming, output: Output, run: PipelineRun) -> Iterator[str]:
    """The directory of the queries' checkpoints, each in a directory with the query's name.

    By default it is temporary if results go to the console.

    Raises :class:`~qbus.errors.ConfigError` if a directory must be configured.
    """
    if config.checkpoint:
        yield config.checkpoint
    elif output.path:
        yield f"{output.path}/_checkpoint"
    elif not output.topic:
        if run.mode is Mode.ONCE:
            run.watcher.note("Unfinished windows are not shown; --batch shows them.")
        with tempfile.TemporaryDirectory(prefix="qbus-", ignore_cleanup_errors=True) as directory:
            yield directory
    elif run.state:
        yield f"{run.state}/{config.name or output.topic}"
    else:
        raise ConfigError(
            "checkpoint is missing: expected a directory, or a URL that Spark accepts"
        )


def write_stream(
    rows: DataFrame,
    name: str,
    key: str,
    config: Streaming,
    output: Output,
    run: PipelineRun,
    place: str,
) -> StreamingQuery:
    """Start a query that writes complete rows, each once.

    name: the query's name. key: the column that becomes the key of records. place: the directory of
    the checkpoints.
    """
    if output.topic:
        writer = _messages(rows, key).writeStream.format("qbus").options(**_sink(config, output))
    elif output.path:
        writer = rows.writeStream.format("parquet").option("path", f"{output.path}/{name}")
    else:
        writer = rows.writeStream.foreachBatch(lambda batch, _: _print(batch, run))
    writer = writer.queryName(name).option("checkpointLocation", f"{place}/{name}")
    if run.mode is Mode.ONCE:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.interval} milliseconds").start()


def write_batch(
    rows: DataFrame, name: str, key: str, config: Streaming, output: Output, run: PipelineRun
) -> None:
    """Write all rows; raises :class:`~qbus.errors.ConfigError` if there are results already."""
    if output.topic:
        _messages(rows, key).write.format("qbus").options(**_sink(config, output)).mode(
            "append"
        ).save()
    elif output.path:
        place = f"{output.path}/{name}"
        if Storage(rows.sparkSession, place).exists():
            raise ConfigError(
                f"output.path = {output.path!r}: {place} has results already, which would be"
                " duplicated: choose another path, or delete them"
            )
        rows.write.parquet(place)
    else:
        _print(rows.orderBy("window_start"), run)


def _messages(rows: DataFrame, key: str) -> DataFrame:
    return rows.select(
        sql.col(key).cast("string").alias("key"),
        sql.to_json(sql.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
    )


def _sink(config: Streaming, output: Output) -> dict[str, str]:
    own = {"qbus.bootstrap": output.bootstrap or config.bootstrap, "topic": output.topic}
    security = output.security if output.bootstrap else config.security
    return {**own, **security_options(security), **dict(output.options)}


def _print(rows: DataFrame, run: PipelineRun) -> None:
    some: list[dict[str, object]] = []
    for row in rows.toLocalIterator():
        fields = row.asDict(recursive=True)
        some.append({name: _printable(value) for name, value in fields.items()})
        if len(some) == _AT_A_TIME:
            run.watcher.rows(some)
            some = []
    if some:
        run.watcher.rows(some)


def _printable(value: object) -> object:
    return written(value) if isinstance(value, datetime) else value
