"""What the columns of a statistic's rows are called."""

from collections.abc import Sequence

from .stats import COUNT, Statistic


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
