"""The columns of a statistic."""

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as sql

from ..config import Statistic
from ..config.columns import flat, label
from ..config.stats import COUNT


def aggregates(statistic: Statistic) -> list[Column]:
    """The columns that summarize the lines of a window: the count, the rate, what is wished for."""
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
