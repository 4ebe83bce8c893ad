"""How a pipeline runs, and whom it tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from .tally import Tally

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
class Run:
    """How to run.

    state: where checkpoints go that the configuration has no place for; empty: it must have one.
    """

    mode: Mode
    watcher: Watcher
    state: str = ""
