"""Who is compared on Spark: Qbus's format, Spark's own connector, and batches built before."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TWO_COLUMNS = {"value": "binary", "offset": "bigint"}
_PATIENCE = 300


@dataclass(frozen=True)
class Side:
    """A format and how it is told what to read.

    has_schema: whether a narrower schema is given to the source, or columns are chosen afterwards.
    """

    name: str
    has_schema: bool = True

    def batch(self, spark: "SparkSession", options: Mapping[str, str], *, two: bool) -> "DataFrame":
        """A batch query."""
        return self._columns(spark.read.format(self.name).options(**options), two)

    def stream(
        self, spark: "SparkSession", options: Mapping[str, str], *, two: bool
    ) -> "DataFrame":
        """A streaming query from the start."""
        reader = spark.readStream.format(self.name)
        if self is not PREBUILT:
            reader = reader.option("startingOffsets", "earliest")
        return self._columns(reader.options(**options), two)

    def _columns(self, reader: Any, two: bool) -> "DataFrame":
        if two and self.has_schema:
            schema = ", ".join(f"{name} {kind}" for name, kind in TWO_COLUMNS.items())
            reader = reader.schema(schema)
        frame: DataFrame = reader.load()
        return frame.select(*TWO_COLUMNS) if two else frame


QBUS, JVM, PREBUILT = Side("qbus"), Side("kafka", has_schema=False), Side("prebuilt")


def drop_batch(frame: "DataFrame") -> float:
    """Read all and keep nothing; seconds."""
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def drop_stream(frame: "DataFrame", count: int) -> float:
    """The same as a stream of what is there; seconds in its micro-batches.

    Raises RuntimeError unless ``count`` rows came.
    """
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_PATIENCE):
            raise RuntimeError("a streaming query does not end")
        rows = sum(one["numInputRows"] for one in query.recentProgress)
        if rows != count:
            raise RuntimeError(f"{rows} rows came, not {count}")
        spent = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
        return float(sum(one["triggerExecution"] for one in spent)) / 1000


def write_batch(frame: "DataFrame", name: str, options: Mapping[str, str]) -> float:
    """Write all; seconds."""
    started = time.perf_counter()
    frame.write.format(name).options(**options).mode("append").save()
    return time.perf_counter() - started
