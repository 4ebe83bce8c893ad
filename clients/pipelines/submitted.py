"""What a pipeline does that ``spark-submit`` runs: its options, and its words on stderr."""

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
    """Run a pipeline, and exit: 0 done, 1 failed, 3 an audit has found differences."""
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
        sys.exit(0 if found.is_equal else 3)
    sys.exit(0)


def _options(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{name}.py")
    parser.add_argument("--config", type=Path, required=True, help="The configuration in TOML.")
    parser.add_argument("--bootstrap", help="The cluster to read, instead of the file's.")
    if name != "audit":
        parser.add_argument("--checkpoint", help="The checkpoint, instead of the file's.")
        parser.add_argument("--once", action="store_true", help="Run to the end, and stop.")
    if name in {"stats", "abuse"}:
        parser.add_argument("--batch", action="store_true", help="The same without a checkpoint.")
    return parser


def _stated(given: argparse.Namespace) -> dict[str, str]:
    values = {key: getattr(given, key, None) for key in ("bootstrap", "checkpoint")}
    return {key: value for key, value in values.items() if value}


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


class Lines:
    """Results as lines of JSON on stdout; how far it is as lines on stderr, batch by batch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._told: dict[str, int] = {}
        self._clock = clock
        self._worked = clock()

    def progress(self, tallies: Sequence[Tally]) -> None:
        """A line for each query that has done more."""
        for tally in tallies:
            if tally.batches > self._told.get(tally.name, 0):
                self._told[tally.name] = tally.batches
                self.note(summary(tally))

    def working(self, text: str) -> None:
        """A line every now and then."""
        if self._clock() - self._worked >= _WORKING_S:
            self._worked = self._clock()
            self.note(text)

    def rows(self, rows: Sequence[Row]) -> None:
        """A line for each row."""
        for row in rows:
            print(json.dumps(row, default=str), flush=True)  # noqa: T201 - the results

    def note(self, text: str) -> None:
        """The line."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def summary(tally: Tally) -> str:
    """How far a query is, in a line."""
    parts = [
        f"{tally.records:,} records in {tally.batches:,} batch{'es' * (tally.batches != 1)}",
        f"{tally.per_second:,.0f}/s" if tally.per_second else "",
        f"{tally.behind:,} behind" if tally.behind is not None else "",
        f"complete up to {tally.watermark}" if tally.watermark else "",
        f"{tally.malformed:,} malformed" if tally.malformed else "",
        f"{tally.late:,} groups too late" if tally.late else "",
    ]
    return f"{tally.name}: " + ", ".join(filter(None, parts))
