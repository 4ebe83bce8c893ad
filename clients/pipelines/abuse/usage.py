"""The usage of a client in the windows of one span."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as sql

from ..config import AbuseConfig

NOW, BEFORE = "now", "before"


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over a part of a span, between two times before its end, in milliseconds.

    slide: the length of a pane. If given, there is also a column of the seconds from the start of
    the client's first pane to the end of the part.
    """

    MEASURES: ClassVar = ("requests", "bytes")

    prefix: str
    begin: int
    end: int
    slide: int = 0

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        sums = [f"{self.prefix}_{what}" for what in self.MEASURES]
        return [*sums, f"{self.prefix}_seconds"] if self.slide else sums

    def columns(self, at: Column, end: Column) -> Iterator[Column]:
        """The aggregates over panes at the time ``at``, in a span that ends at ``end``."""
        inside = (at >= _earlier(end, self.begin)) & (at < _earlier(end, self.end))
        for what in self.MEASURES:
            total = sql.sum(sql.when(inside, sql.col(what)).otherwise(0))
            yield total.alias(f"{self.prefix}_{what}")
        if self.slide:
            first = sql.min(sql.when(inside, sql.unix_millis(at))) + 1 - self.slide
            seconds = (sql.unix_millis(end) - self.end - first) / 1000
            yield seconds.alias(f"{self.prefix}_seconds")


def usages(config: AbuseConfig) -> list[Usage]:
    """The usages in this window and the one before, and in their past if it is compared."""
    window, slide = config.window, config.slide
    found = [Usage(NOW, window, 0), Usage(BEFORE, window + slide, slide)]
    if config.baseline.own_factor:
        past = config.baseline.history
        found.append(Usage(f"{NOW}_past", window + past, window, slide))
        found.append(Usage(f"{BEFORE}_past", window + slide + past, window + slide, slide))
    return found


def _earlier(moment: Column, milliseconds: int) -> Column:
    return moment - sql.expr(f"interval {milliseconds} milliseconds")
