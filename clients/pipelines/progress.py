"""Follows the progress of streaming queries and of Spark's stages."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .run import Tally, Watcher

if TYPE_CHECKING:
    from pyspark.core.status import StatusTracker
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 1


def follow(queries: "Sequence[StreamingQuery]", watcher: Watcher) -> list[Tally]:
    """Wait for all queries. If one fails, or at SIGINT or SIGTERM, all are stopped.

    Raises the error of the failed query, KeyboardInterrupt or SystemExit.
    """
    tallies = [Tally(query.name or "") for query in queries]
    with _signals() as caught:
        try:
            while not caught and (running := [query for query in queries if query.isActive]):
                running[0].awaitTermination(_POLL_S)
                _report(queries, tallies, watcher)
            _report(queries, tallies, watcher)
        finally:
            for query in queries:
                query.stop()
    if signal.SIGTERM in caught:
        raise SystemExit(128 + signal.SIGTERM)
    if caught:
        raise KeyboardInterrupt
    return tallies


def _report(queries: "Sequence[StreamingQuery]", tallies: list[Tally], watcher: Watcher) -> None:
    for query, tally in zip(queries, tallies, strict=True):
        if error := query.exception():
            raise error
        tally.add(json.loads(progress.json) for progress in query.recentProgress)
    watcher.progress(tallies)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM.

    An exception from a signal handler could interrupt a call to the JVM, and the next call would
    then receive the answer of the interrupted one.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, lambda caught_number, _: caught.append(caught_number))
        for number in wanted
    }
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_STAGES_POLL_S = 1.0


@contextmanager
def stages_reported(
    spark: "SparkSession", watcher: Watcher, *, every: float = _STAGES_POLL_S
) -> Iterator[None]:
    """Report Spark's running stages to a watcher, every so many seconds."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with pyspark

    tracker = spark.sparkContext.statusTracker()
    done = threading.Event()

    def poll() -> None:
        with suppress(Py4JError, OSError):  # Spark has ended; the caller gets the error
            while not done.wait(every):
                if text := running_stages(tracker):
                    watcher.working(text)

    thread = threading.Thread(target=poll, name="qbus-stages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def running_stages(tracker: "StatusTracker") -> str:
    """The running stages with the number of finished tasks; empty if none runs."""
    parts = []
    for stage in sorted(tracker.getActiveStageIds()):
        info = tracker.getStageInfo(stage)
        if info is not None:
            parts.append(f"step {stage}: {info.numCompletedTasks:,} of {info.numTasks:,} tasks")
    return ", ".join(parts)
