"""How far Spark is with work that has no micro-batches: by the tasks of its stages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .modes import Watcher

if TYPE_CHECKING:
    from pyspark.core.status import StatusTracker
    from pyspark.sql import SparkSession

_LOOK_S = 1.0


@contextmanager
def told(spark: "SparkSession", watcher: Watcher, *, every: float = _LOOK_S) -> Iterator[None]:
    """Meanwhile tell a watcher what Spark is at, every so many seconds."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark

    tracker = spark.sparkContext.statusTracker()
    done = threading.Event()

    def look() -> None:
        with suppress(Py4JError, OSError):  # Spark has ended, and whoever waits for it is told so
            while not done.wait(every):
                if text := at_work(tracker):
                    watcher.working(text)

    thread = threading.Thread(target=look, name="qbus-stages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def at_work(tracker: "StatusTracker") -> str:
    """The stages that run, and how many of their tasks are done; empty: none runs."""
    parts = []
    for stage in sorted(tracker.getActiveStageIds()):
        info = tracker.getStageInfo(stage)
        if info is not None:
            parts.append(f"step {stage}: {info.numCompletedTasks:,} of {info.numTasks:,} tasks")
    return ", ".join(parts)
