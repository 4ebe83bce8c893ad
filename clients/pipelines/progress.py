"""Waiting for streaming queries, and telling of them."""

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
    """Return when all are done. When one fails, or SIGINT or SIGTERM comes, all are stopped.

    Raises what Spark says of the query that failed, KeyboardInterrupt, SystemExit.
    """
    tallies = [Tally(query.name or "") for query in queries]
    with _signals() as caught:
        try:
            while not caught and (running := [query for query in queries if query.isActive]):
                running[0].awaitTermination(_POLL_S)
                _look(queries, tallies, watcher)
            _look(queries, tallies, watcher)
        finally:
            for query in queries:
                query.stop()
    if signal.SIGTERM in caught:
        raise SystemExit(128 + signal.SIGTERM)
    if caught:
        raise KeyboardInterrupt
    return tallies


def _look(queries: "Sequence[StreamingQuery]", tallies: list[Tally], watcher: Watcher) -> None:
    for query, tally in zip(queries, tallies, strict=True):
        if error := query.exception():
            raise error
        tally.add(json.loads(progress.json) for progress in query.recentProgress)
    watcher.progress(tallies)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that have come meanwhile.

    An exception out of a handler could end a call to the JVM halfway, and the next call would be
    given the answer to that one.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _: caught.append(number)) for one in wanted}
    try:
        yield caught
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


_STAGES_POLL_S = 1.0


@contextmanager
def told(
    spark: "SparkSession", watcher: Watcher, *, every: float = _STAGES_POLL_S
) -> Iterator[None]:
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
