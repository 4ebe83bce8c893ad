"""The ceiling of any Python source: a format for Spark whose Arrow batches are there already."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from qbus.clients.spark.schema import source_schema

ROWS = 100_000
"""Rows of a batch: what the source makes, and the best of those that were tried."""


class Prebuilt(DataSource):
    """``rows`` rows with values of ``size`` bytes in ``partitions`` partitions."""

    @classmethod
    def name(cls) -> str:
        """What is given to ``format``."""
        return "prebuilt"

    def schema(self) -> StructType:
        """Those of the source."""
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads once."""
        return PrebuiltReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Reads once, as a stream of one micro-batch."""
        return PrebuiltStream(self.options, schema)


class _Rows:
    """What both readers share."""

    def __init__(self, options: Any, schema: StructType) -> None:
        self._rows = int(options["rows"])
        self._size = int(options["size"])
        self._partitions = int(options["partitions"])
        self._schema = schema

    def _parts(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, _partition: InputPartition) -> Iterator[Any]:
        """The same batch again and again."""
        batch = _batch(self._schema, self._size)
        left = self._rows // self._partitions
        while left > 0:
            yield batch.slice(0, min(left, ROWS))
            left -= ROWS


class PrebuiltReader(_Rows, DataSourceReader):
    """A batch query."""

    def partitions(self) -> list[InputPartition]:
        """One for each task."""
        return self._parts()


class PrebuiltStream(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query, for the trigger ``availableNow``."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first row."""
        return {"rows": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """There is never more."""

    def latestOffset(  # noqa: N802 - Spark's name
        self, _start: dict[str, int], _limit: ReadLimit
    ) -> dict[str, int]:
        """Behind the last row."""
        return {"rows": self._rows}

    def partitions(self, _start: dict[str, int], _end: dict[str, int]) -> list[InputPartition]:
        """One for each task."""
        return self._parts()


def _batch(schema: StructType, size: int) -> Any:
    columns = {
        "key": pa.nulls(ROWS, pa.binary()),
        "value": pa.array([bytes(size)] * ROWS, pa.binary()),
        "topic": pa.array(["prebuilt"] * ROWS),
        "partition": pa.array([0] * ROWS, pa.int32()),
        "offset": pa.array(range(ROWS), pa.int64()),
        "timestamp": pa.array([0] * ROWS, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * ROWS, pa.int32()),
    }
    wanted = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted.names], schema=wanted)
