"""Tests for too much usage: against limits, a client's own past, and its peers."""

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as sql

from ..config import AbuseConfig
from .usage import NOW, Usage


def reasons(which: str, config: AbuseConfig) -> Column:
    """An array of the names of the tests that a window fails.

    which: NOW or BEFORE.
    """
    found = [*_limits(which, config), *_own_past(which, config), *_peers(which, config)]
    none = sql.lit(None).cast("string")
    named = [sql.when(test, sql.lit(name)).otherwise(none) for name, test in found]
    return sql.array_compact(sql.array(*named))


def is_unusual(config: AbuseConfig) -> Column:
    """Whether a window fails a test that does not involve peers."""
    return _any(test for _, test in (*_limits(NOW, config), *_own_past(NOW, config)))


def may_be_unusual(config: AbuseConfig) -> Column:
    """Whether a window may fail the test against its peers."""
    if not config.baseline.peers_factor:
        return sql.lit(False)
    return _any(_is_enough(NOW, what, config) for what in Usage.MEASURES)


def own_rate(which: str, what: str) -> Column:
    """A client's usage per second of its past, since it was first seen there; or null."""
    return sql.col(f"{which}_past_{what}") / sql.col(f"{which}_past_seconds")


def _any(tests: Iterable[Column]) -> Column:
    found = sql.lit(False)
    for test in tests:
        found |= sql.coalesce(test, sql.lit(False))
    return found


def _limits(which: str, config: AbuseConfig) -> list[tuple[str, Column]]:
    limits = ((what, getattr(config.limits, what)) for what in Usage.MEASURES)
    return [
        (f"{what} over limit", sql.col(f"{which}_{what}") > limit)
        for what, limit in limits
        if limit
    ]


def _own_past(which: str, config: AbuseConfig) -> list[tuple[str, Column]]:
    baseline = config.baseline
    if not baseline.own_factor:
        return []
    scale = baseline.own_factor * config.window / 1000
    return [
        (
            f"{what} over own past",
            _is_enough(which, what, config)
            & (sql.col(f"{which}_past_{what}") > 0)
            & (sql.col(f"{which}_{what}") > own_rate(which, what) * scale),
        )
        for what in Usage.MEASURES
    ]


def _peers(which: str, config: AbuseConfig) -> list[tuple[str, Column]]:
    factor = config.baseline.peers_factor
    if not factor:
        return []
    return [
        (
            f"{what} over peers",
            _is_enough(which, what, config)
            & (sql.col(f"{which}_{what}") > sql.col(f"peers_{which}_{what}") * factor),
        )
        for what in Usage.MEASURES
    ]


def _is_enough(which: str, what: str, config: AbuseConfig) -> Column:
    least: int = getattr(config.baseline, what)
    return sql.col(f"{which}_{what}") >= least
