"""How a pipeline runs, and how it reports."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


@dataclass
class Tally:
    """The progress of one query since it started, summed over its micro-batches.

    behind: the records to read after the last batch; None: unknown.
    malformed, late: lines that could not be parsed; groups of lines that came after their window.
    watermark: the time up to which windows are complete, in ISO 8601; empty: unknown.
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
        """Add Spark's reports, in order; reports that were added before are ignored."""
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
    """A number, or 0 for the text that Spark writes instead of NaN."""
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
    """The positions in the JSON of the source ``qbus``; None for other sources."""
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
    """When a pipeline ends."""

    STREAM = "stream"
    """When it is stopped."""
    ONCE = "once"
    """After the records that exist now; the next run continues from there."""
    BATCH = "batch"
    """The same without a checkpoint; unfinished windows are included."""


class Watcher(Protocol):
    """Receives reports of a pipeline. Thread-safe."""

    def progress(self, tallies: Sequence[Tally]) -> None:
        """Report the progress of each query."""

    def working(self, text: str) -> None:
        """Report the running stages of work without micro-batches."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Receive results that go to the console."""

    def note(self, text: str) -> None:
        """Receive a remark."""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """How to run a pipeline.

    state: the directory for checkpoints that are not configured; empty: they must be configured.
    """

    mode: Mode
    watcher: Watcher
    state: str = ""
