"""How a pipeline runs, and whom it tells of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


@dataclass
class Tally:
    """What one query has done since it started.

    behind: how many records there were to read after the last batch; None: not known.
    malformed, late: lines that could not be read; groups of lines that came after their window.
    watermark: up to when windows are complete, in ISO 8601; empty: not known.
    """

    name: str
    batches: int = 0
    records: int = 0
    per_second: float = 0.0
    behind: int | None = None
    malformed: int = 0
    late: int = 0
    watermark: str = ""
    _last: tuple[int, str] = field(default=(-1, ""), repr=False)

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take in Spark's reports, in order; those that were taken in before do not count again."""
        for report in reports:
            key = (int(report["batchId"]), str(report["timestamp"]))
            if key > self._last:
                self._last = key
                self._take(report)

    def _take(self, report: Mapping[str, Any]) -> None:
        records = int(report.get("numInputRows") or 0)
        self.batches += bool(records)
        self.records += records
        if records:
            self.per_second = _number(report.get("processedRowsPerSecond"))
        for operator in report.get("stateOperators") or ():
            self.late += int(operator.get("numRowsDroppedByWatermark") or 0)
        for metrics in (report.get("observedMetrics") or {}).values():
            self.malformed += int(metrics.get("malformed") or 0)
        watermark = (report.get("eventTime") or {}).get("watermark", "")
        if not watermark.startswith("1970-"):
            self.watermark = watermark
        behind = [_behind(source) for source in report.get("sources") or ()]
        if behind and None not in behind:
            self.behind = sum(filter(None, behind))


def _number(value: Any) -> float:
    """Spark writes what is no number as text."""
    return float(value) if isinstance(value, int | float) else 0.0


def _behind(source: Mapping[str, Any]) -> int | None:
    end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, offsets in latest.items()
        for partition, offset in offsets.items()
    )


def _offsets(written: Any) -> Mapping[str, Mapping[str, int]] | None:
    """The positions in our source's JSON; what begins with ``#`` is none. None: another source."""
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            return None
    if not isinstance(written, Mapping):
        return None
    found = {topic: ends for topic, ends in written.items() if not topic.startswith("#")}
    return found if all(isinstance(ends, Mapping) for ends in found.values()) else None


Row = dict[str, Any]


class Mode(Enum):
    """For how long a pipeline runs."""

    STREAM = "stream"
    """Until it is stopped."""
    ONCE = "once"
    """To the end of what there is now; the next run goes on from there."""
    BATCH = "batch"
    """The same without a checkpoint: all that there is, windows that are not over included."""


class Watcher(Protocol):
    """Is told what a pipeline does. Any thread may call it."""

    def progress(self, tallies: Sequence[Tally]) -> None:
        """How far each query is."""

    def working(self, text: str) -> None:
        """What Spark is at, in work that has no batches."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Results, where these go to the console."""

    def note(self, text: str) -> None:
        """Something that is worth a line."""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """How to run.

    state: where checkpoints go that the configuration has no place for; empty: it must have one.
    """

    mode: Mode
    watcher: Watcher
    state: str = ""
