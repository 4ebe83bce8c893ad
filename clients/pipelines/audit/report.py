"""The report of an audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ..times import of_micros
from .comparison import CHANGED, DUPLICATE, EXTRA, MISSING

Row = Mapping[str, Any]


class Verdict(IntEnum):
    """The result of an audit; the value is the command's exit code."""

    EQUAL = 0
    UNEQUAL = 3
    NOTHING_COMPARED = 4


@dataclass(frozen=True)
class Report:
    """The intervals of each partition, and the ranges of offsets that differ.

    intervals: rows with topic, partition, start, the sums of both sides, and counts by kind.
    partitions: the compared offsets of each, ``begin`` and ``end``; and ``skipped_left`` and
    ``skipped_right``, the numbers of offsets before them that only that side still has.
    """

    left: str
    right: str
    partitions: Sequence[Row]
    intervals: Sequence[Row]
    differences: Sequence[Row] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Whether both sides hold the same records, and at least one was compared."""
        if not self.intervals:
            return Verdict.NOTHING_COMPARED
        return Verdict.EQUAL if all(row["equal"] for row in self.intervals) else Verdict.UNEQUAL

    @property
    def uncompared(self) -> list[str]:
        """The topics of which no record was compared."""
        compared = {row["topic"] for row in self.intervals}
        return sorted({row["topic"] for row in self.partitions} - compared)

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "equal": self.verdict is Verdict.EQUAL,
            "verdict": self.verdict.name.lower(),
            "uncompared": self.uncompared,
            "left": self.left,
            "right": self.right,
            "records": sum(row["left_count"] for row in self.intervals),
            "records_right": sum(row["right_count"] for row in self.intervals),
            **{kind: sum(row[kind] for row in self.intervals) for kind in KINDS},
            **{kind: sum(row[kind] for row in self.partitions) for kind in SKIPPED},
            "partitions": list(self.partitions),
            "intervals": list(self.intervals),
            "differences": list(self.differences),
        }


KINDS = (MISSING, EXTRA, DUPLICATE, CHANGED, "gaps_left", "gaps_right")
SKIPPED = ("skipped_left", "skipped_right")


def interval_rows(
    sums: Iterable[Row], counts: Iterable[Row], absent: Mapping[str, Iterable[Row]]
) -> list[dict[str, Any]]:
    """The rows of a report, in order.

    sums: of compared summaries. counts: of differences, with ``what`` and ``records``.
    absent: the gaps of each side; gaps in intervals that were not compared are ignored.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sums:
        found[_key(row)] = {
            "topic": row["topic"],
            "partition": row["partition"],
            "start": of_micros(row["start"]),
            "equal": row["equal"],
            "left_count": row["left_count"] or 0,
            "right_count": row["right_count"] or 0,
            **dict.fromkeys(KINDS, 0),
        }
    for row in counts:
        found[_key(row)][row["what"]] += row["records"]
    for side, gaps in absent.items():
        for row in gaps:
            if _key(row) in found:
                found[_key(row)][f"gaps_{side}"] += row["end"] - row["begin"] + 1
    return [found[key] for key in sorted(found)]


def _key(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["start"]
