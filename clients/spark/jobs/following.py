"""Waiting for streaming queries, and telling of them."""

import json
from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from .modes import Watcher
from .tally import Tally

_LOOK_S = 1


def follow(queries: Sequence[StreamingQuery], watcher: Watcher) -> list[Tally]:
    """Return when all are done. When one fails, or the caller is interrupted, all are stopped.

    Raises what Spark says of the query that failed.
    """
    tallies = [Tally(query.name or "") for query in queries]
    try:
        while running := [query for query in queries if query.isActive]:
            running[0].awaitTermination(_LOOK_S)
            _look(queries, tallies, watcher)
        _look(queries, tallies, watcher)
    finally:
        for query in queries:
            query.stop()
    return tallies


def _look(queries: Sequence[StreamingQuery], tallies: list[Tally], watcher: Watcher) -> None:
    for query, tally in zip(queries, tallies, strict=True):
        if error := query.exception():
            raise error
        tally.add(json.loads(progress.json) for progress in query.recentProgress)
    watcher.progress(tallies)
