"""Streaming queries that run to their end."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BUSY = "Python worker failed to connect back"
"""Spark gives the process that plans a query ten seconds to start, and nobody can change that."""
ATTEMPTS = 5


def run_to_end(start: "Callable[[], StreamingQuery]", timeout: int = 150) -> "StreamingQuery":
    """The query that ``start`` starts, ended: with the trigger ``availableNow``, or by an error.

    Raises what the query does. A query whose planner did not start in time has done nothing, and is
    started again.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(ATTEMPTS):
        query = start()
        try:
            assert query.awaitTermination(timeout), f"the query runs after {timeout} s"
        except StreamingQueryException as error:
            if BUSY not in str(error) or attempt == ATTEMPTS - 1:
                raise
        else:
            break
    return query
