"""The configuration of the statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

from qbus.service.toml import required, rules, setting

from . import rules as own
from .common import Lines, Output, Streaming

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields


COUNT = "count"
PERCENTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """What is computed for each window: a ``[[statistic]]`` table. All have a count and a rate."""

    name: str = required(own.name(), "Name of the statistic.")
    window: int = setting(60_000, own.duration(), "Length of a window.")
    slide: int = setting(
        0,
        own.duration(at_least_ms=0),
        "Time from the start of one window to the next; `0 ms`: the length of a window.",
    )
    watermark: int = setting(
        600_000,
        own.duration(),
        "How late a line may arrive, by its time, after the latest line. A window is complete, and"
        " written, so long after its end. Later lines are skipped, counted and reported.",
    )
    where: str = setting(
        "",
        rules.text(1, 10_000),
        "Only lines that match this SQL expression, such as `status >= 500`.",
    )
    by: tuple[str, ...] = setting((), own.columns(), "Fields to group by.")
    sum: tuple[str, ...] = setting(
        (), own.columns(), "Fields to sum: `<field>_sum` and `<field>_per_second`."
    )
    mean: tuple[str, ...] = setting((), own.columns(), "Fields to average: `<field>_mean`.")
    min: tuple[str, ...] = setting((), own.columns(), "Fields for minimums: `<field>_min`.")
    max: tuple[str, ...] = setting((), own.columns(), "Fields for maximums: `<field>_max`.")
    distinct: tuple[str, ...] = setting(
        (),
        own.columns(),
        "Fields to count distinct values of, with an error of about 5% (HyperLogLog++):"
        " `<field>_distinct`.",
    )
    percentiles_of: tuple[str, ...] = setting(
        (), own.columns(), "Fields for percentiles: `<field>_p50`, `<field>_p99_9`."
    )
    percentiles: tuple[float, ...] = setting(
        PERCENTILES, own.fractions(), "The percentiles, as fractions."
    )
    exact_percentiles: bool = setting(
        False,
        rules.boolean(),
        "Whether percentiles are interpolated from all values, which are held until a window is"
        " complete. Otherwise each is a value whose rank is within 0.01%, in bounded memory.",
    )
    top: int = setting(
        0,
        rules.whole(0, 10_000),
        "Only so many rows of each window, those with the largest values; 0: all.",
    )
    top_by: str = setting(
        COUNT,
        own.column(),
        "The column that ranks rows: `count`, or another number such as `bytes_sum`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig(Streaming):
    """The top level of the statistics' file."""

    lines: Lines = setting(Lines(), rules.table(Lines), "How values are parsed.")
    output: Output = setting(Output(), rules.table(Output), "Where results go.")
    statistics: tuple[Statistic, ...] = setting(
        (), rules.tables(Statistic), "What is computed.", table="statistic"
    )


def flat(field: str) -> str:
    """The name of a field in column names: ``user.name`` becomes ``user_name``."""
    return field.replace(".", "_")


def label(fraction: float) -> str:
    """The name of a percentile in column names: ``p50``, ``p99_9``."""
    return f"p{fraction * 100:.10g}".replace(".", "_")


def measures(statistic: Statistic) -> list[str]:
    """The computed columns, by which rows can be ranked."""
    return [
        COUNT,
        "per_second",
        *_suffixed(statistic.sum, "sum", "per_second"),
        *_suffixed(statistic.mean, "mean"),
        *_suffixed(statistic.min, "min"),
        *_suffixed(statistic.max, "max"),
        *_suffixed(statistic.distinct, "distinct"),
        *_suffixed(statistic.percentiles_of, *map(label, statistic.percentiles)),
    ]


def columns(statistic: Statistic) -> list[str]:
    """All columns, in order."""
    return [
        "statistic",
        "window_start",
        "window_end",
        *(["rank"] if statistic.top else []),
        *map(flat, statistic.by),
        *measures(statistic),
    ]


def _suffixed(fields: Sequence[str], *suffixes: str) -> list[str]:
    return [f"{flat(field)}_{suffix}" for field in fields for suffix in suffixes]
