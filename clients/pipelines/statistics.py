"""Statistics of lines by window: counts, rates, sums, percentiles, top rows."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from .config import Statistic
from .config.checks import EVENT_TIME
from .config.stats import COUNT, columns, flat, label
from .parsing import check_numbers, only
from .times import interval

_WINDOW, _TOP = "#window", "#top"  # no field has such a name


def summarized(lines: DataFrame, statistic: Statistic) -> DataFrame:
    """A row for each window and value of ``by``; with ``top``, the top rows and their ranks.

    A stream writes each row once, when the watermark has passed its window; a batch writes all.

    lines: from :func:`~.parsing.well_formed`.

    Raises :class:`~qbus.errors.ConfigError` for sums of fields that are not numbers, and for an
    invalid ``where``.
    """
    for key in ("sum", "mean", "percentiles_of"):
        place = f"statistic {statistic.name}: {key}"
        check_numbers(lines, place, getattr(statistic, key))
    slide = statistic.slide or statistic.window
    rows = (
        only(lines.withWatermark(EVENT_TIME, interval(statistic.watermark)), statistic.where)
        .groupBy(
            sql.window(EVENT_TIME, interval(statistic.window), interval(slide)).alias(_WINDOW),
            *(sql.col(field).alias(flat(field)) for field in statistic.by),
        )
        .agg(*aggregates(statistic))
    )
    if statistic.top:
        rows = _top_rows(rows, statistic)
    return rows.select(
        sql.lit(statistic.name).alias("statistic"),
        sql.col(f"`{_WINDOW}`.start").alias("window_start"),
        sql.col(f"`{_WINDOW}`.end").alias("window_end"),
        *columns(statistic)[3:],
    )


def _top_rows(rows: DataFrame, statistic: Statistic) -> DataFrame:
    """The top rows of each window; ties are ordered by their groups."""
    names = [name for name in rows.columns if name != _WINDOW]
    order = sql.struct(
        -sql.coalesce(sql.col(statistic.top_by).try_cast("double"), sql.lit(float("-inf"))),
        *(sql.col(flat(field)) for field in statistic.by),
    )
    row = sql.struct(*(sql.col(name) for name in names))
    best = rows.groupBy(f"`{_WINDOW}`").agg(sql.min_by(row, order, statistic.top).alias(_TOP))
    ranked = best.select(f"`{_WINDOW}`", sql.posexplode(f"`{_TOP}`").alias("at", "row"))
    return ranked.select(f"`{_WINDOW}`", (sql.col("at") + 1).alias("rank"), "row.*")


def aggregates(statistic: Statistic) -> list[Column]:
    """The aggregates of a window: the count, the rate, and those that are configured."""
    seconds = statistic.window / 1000
    count = sql.count(sql.lit(1))
    columns = [count.alias(COUNT), (count / seconds).alias("per_second")]
    for field in statistic.sum:
        total = sql.sum(field)
        columns.append(total.alias(f"{flat(field)}_sum"))
        columns.append((total / seconds).alias(f"{flat(field)}_per_second"))
    columns += [sql.avg(field).alias(f"{flat(field)}_mean") for field in statistic.mean]
    columns += [sql.min(field).alias(f"{flat(field)}_min") for field in statistic.min]
    columns += [sql.max(field).alias(f"{flat(field)}_max") for field in statistic.max]
    columns += [
        sql.approx_count_distinct(field).alias(f"{flat(field)}_distinct")
        for field in statistic.distinct
    ]
    return [*columns, *_percentiles(statistic)]


def _percentiles(statistic: Statistic) -> Iterator[Column]:
    compute = sql.percentile if statistic.exact_percentiles else sql.percentile_approx
    for field in statistic.percentiles_of:
        for fraction in statistic.percentiles:
            yield compute(field, fraction).alias(f"{flat(field)}_{label(fraction)}")
