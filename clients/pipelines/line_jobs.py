"""The pipelines of lines: statistics and abuse detection."""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from .abuse import alerts
from .config import AbuseConfig, Statistic, StatsConfig
from .parsing import MALFORMED, parsed, well_formed
from .progress import follow
from .records import LINE_COLUMNS, batch, stream
from .results import checkpoint, write_batch, write_stream
from .run import Mode, PipelineRun, Tally
from .statistics import summarized


class _Computed(NamedTuple):
    """A result: its name, the column for record keys, and how it is computed from lines."""

    name: str
    key: str
    compute: Callable[[DataFrame], DataFrame]


def run_stats(spark: SparkSession, config: StatsConfig, run: PipelineRun) -> list[Tally]:
    """Compute statistics; raises Spark's errors and :class:`~qbus.errors.ConfigError`."""

    def computed(statistic: Statistic) -> _Computed:
        return _Computed(
            statistic.name,
            "statistic",
            lambda lines: summarized(well_formed(lines), statistic),
        )

    return _run(spark, config, run, [computed(statistic) for statistic in config.statistics])


def run_abuse(spark: SparkSession, config: AbuseConfig, run: PipelineRun) -> list[Tally]:
    """Detect abuse; raises Spark's errors and :class:`~qbus.errors.ConfigError`."""

    def compute(lines: DataFrame) -> DataFrame:
        return alerts(well_formed(lines), config)

    return _run(spark, config, run, [_Computed(config.name or "abuse", "client", compute)])


def _run(
    spark: SparkSession,
    config: StatsConfig | AbuseConfig,
    run: PipelineRun,
    results: list[_Computed],
) -> list[Tally]:
    if run.mode is Mode.BATCH:
        return [_once(spark, config, run, result) for result in results]
    with checkpoint(config, config.output, run) as place:
        run.watcher.note(f"Checkpoints are in {place}.")
        queries = []
        for result in results:
            rows = result.compute(
                observed(parsed(stream(spark, config, LINE_COLUMNS), config.lines))
            )
            queries.append(
                write_stream(rows, result.name, result.key, config, config.output, run, place)
            )
        return follow(queries, run.watcher)


def _once(
    spark: SparkSession, config: StatsConfig | AbuseConfig, run: PipelineRun, result: _Computed
) -> Tally:
    from pyspark.sql import Observation  # noqa: PLC0415 - streams have none

    seen = Observation()
    lines = parsed(batch(spark, config, LINE_COLUMNS), config.lines)
    lines = lines.observe(seen, sql.count(sql.lit(1)).alias("records"), _malformed())
    rows = result.compute(lines)
    write_batch(rows, result.name, result.key, config, config.output, run)
    tally = Tally(result.name, batches=1, **seen.get)
    run.watcher.progress([tally])
    return tally


def observed(lines: DataFrame) -> DataFrame:
    """Lines whose malformed ones Spark counts in its reports."""
    return lines.observe(MALFORMED, _malformed())


def _malformed() -> Column:
    return sql.count_if(MALFORMED).alias(MALFORMED)
