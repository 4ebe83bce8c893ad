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
    """What is computed of each window: a ``[[statistic]]`` table. All have a count and a rate."""

    name: str = required(own.name(), "What it is called.")
    window: int = setting(60_000, own.duration(), "How long a window is.")
    slide: int = setting(
        0,
        own.duration(at_least_ms=0),
        "How far one window begins after the other; `0 ms`: as long as a window.",
    )
    watermark: int = setting(
        600_000,
        own.duration(),
        "How late a line may come, by its time, after the latest that was seen; a window is"
        " complete, and written, so long after its end. What comes later still is left out,"
        " counted and reported.",
    )
    where: str = setting(
        "", rules.text(1, 10_000), "An SQL expression: which lines count, as `status >= 500`."
    )
    by: tuple[str, ...] = setting((), own.columns(), "Fields: a row for each of their values.")
    sum: tuple[str, ...] = setting(
        (), own.columns(), "Fields to add up: `<field>_sum`, and `<field>_per_second`."
    )
    mean: tuple[str, ...] = setting((), own.columns(), "Fields to average: `<field>_mean`.")
    min: tuple[str, ...] = setting((), own.columns(), "Fields whose least counts: `<field>_min`.")
    max: tuple[str, ...] = setting((), own.columns(), "Fields whose most counts: `<field>_max`.")
    distinct: tuple[str, ...] = setting(
        (),
        own.columns(),
        "Fields to count the different values of, with an error of about 5% (HyperLogLog++):"
        " `<field>_distinct`.",
    )
    percentiles_of: tuple[str, ...] = setting(
        (), own.columns(), "Fields to give percentiles of: `<field>_p50`, `<field>_p99_9`."
    )
    percentiles: tuple[float, ...] = setting(
        PERCENTILES, own.fractions(), "Which ones, as fractions."
    )
    exact_percentiles: bool = setting(
        False,
        rules.boolean(),
        "Whether they are interpolated from all values, which are held until a window is complete;"
        " else each is a value whose rank is within 0.01%, in bounded memory.",
    )
    top: int = setting(
        0, rules.whole(0, 10_000), "Of each window only so many rows, those with the most; 0: all."
    )
    top_by: str = setting(
        COUNT,
        own.column(),
        "The most of what: `count`, or another column of numbers, as `bytes_sum`, `took_ms_p99`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig(Streaming):
    """Everything the statistics are told, at the top of the file."""

    lines: Lines = setting(Lines(), rules.table(Lines), "How values are read.")
    output: Output = setting(Output(), rules.table(Output), "Where results go.")
    statistics: tuple[Statistic, ...] = setting(
        (), rules.tables(Statistic), "What is computed.", table="statistic"
    )


def flat(field: str) -> str:
    """A field's name as part of a column's: ``user.name`` is ``user_name``."""
    return field.replace(".", "_")


def label(fraction: float) -> str:
    """What a percentile is called in a column's name: ``p50``, ``p99_9``."""
    return f"p{fraction * 100:.10g}".replace(".", "_")


def measures(statistic: Statistic) -> list[str]:
    """The columns that are computed, which rows can be ranked by."""
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
