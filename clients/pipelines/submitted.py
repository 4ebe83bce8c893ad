"""Runs a pipeline under ``spark-submit``: reads its options, and reports in lines of text."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from qbus.errors import QbusError

from .config import load
from .launch import launch
from .run import Mode, PipelineRun, Row, Tally

_WORKING_S = 30.0


def main(name: str) -> NoReturn:
    """Run a pipeline and exit: 0 done, 1 failed; audits: 3 they differ, 4 nothing compared."""
    given = _options(name).parse_args()
    signal.signal(signal.SIGTERM, _stop)
    try:
        config: Any = load(name, given.config, _stated(given))
        modes = [mode for mode in (Mode.BATCH, Mode.ONCE) if getattr(given, mode.value, False)]
        mode = modes[0] if modes else Mode.STREAM
        found = launch(name, config, PipelineRun(mode, Lines()), master=None, settings={})
    except QbusError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - a command's own words
        sys.exit(1)
    if name == "audit":
        print(json.dumps(found.document()))  # noqa: T201
        sys.exit(found.verdict)
    sys.exit(0)


def _options(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{name}.py")
    parser.add_argument("--config", type=Path, required=True, help="Configuration in TOML.")
    parser.add_argument("--bootstrap", help="Cluster to read; overrides the file.")
    if name != "audit":
        parser.add_argument("--checkpoint", help="Directory of the checkpoint; overrides the file.")
        parser.add_argument(
            "--once", action="store_true", help="Process the records that exist now, then stop."
        )
    if name in {"stats", "abuse"}:
        parser.add_argument("--batch", action="store_true", help="The same, without a checkpoint.")
    return parser


def _stated(given: argparse.Namespace) -> dict[str, str]:
    values = {key: getattr(given, key, None) for key in ("bootstrap", "checkpoint")}
    return {key: value for key, value in values.items() if value}


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


class Lines:
    """A watcher that prints results as JSON on stdout, and progress on stderr."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._batches: dict[str, int] = {}
        self._clock = clock
        self._reported_at = clock()

    def progress(self, tallies: Sequence[Tally]) -> None:
        """Print a line for each query with new batches."""
        for tally in tallies:
            if tally.batches > self._batches.get(tally.name, 0):
                self._batches[tally.name] = tally.batches
                self.note(summary(tally))

    def working(self, text: str) -> None:
        """Print a line, at most every 30 seconds."""
        if self._clock() - self._reported_at >= _WORKING_S:
            self._reported_at = self._clock()
            self.note(text)

    def rows(self, rows: Sequence[Row]) -> None:
        """Print a line for each row."""
        for row in rows:
            print(json.dumps(row, default=str), flush=True)  # noqa: T201 - the results

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def summary(tally: Tally) -> str:
    """The progress of a query in one line."""
    parts = [
        f"{tally.records:,} records in {tally.batches:,} batch{'es' * (tally.batches != 1)}",
        f"{tally.per_second:,.0f}/s" if tally.per_second else "",
        f"{tally.behind:,} behind" if tally.behind is not None else "",
        f"complete up to {tally.watermark}" if tally.watermark else "",
        f"{tally.malformed:,} malformed" if tally.malformed else "",
        f"{tally.late:,} groups too late" if tally.late else "",
    ]
    return f"{tally.name}: " + ", ".join(filter(None, parts))
