"""Streaming queries that run to their end."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.spark_session import has_timed_out

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = 5


def run_to_end(start: "Callable[[], StreamingQuery]", timeout: int = 150) -> "StreamingQuery":
    """The query that ``start`` starts, ended: with the trigger ``availableNow``, or by an error.

    Raises what the query does. A query whose planner did not start in time has done nothing, and is
    started again, up to ``ATTEMPTS`` times.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(ATTEMPTS):
        query = start()
        try:
            assert query.awaitTermination(timeout), f"the query runs after {timeout} s"
        except StreamingQueryException as error:
            if not has_timed_out(error) or attempt == ATTEMPTS - 1:
                raise
        else:
            break
    return query
