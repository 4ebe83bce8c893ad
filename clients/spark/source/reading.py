"""What a task does: reads a range, batch by batch."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..connections import connections
from .arrow import RowsForSpark, before
from .fetch import RangeFetch
from .options import FetchOptions
from .ranges import OffsetRange


def read(partition: InputPartition, options: FetchOptions, schema: StructType) -> Iterator[Any]:
    """The records of a range as ``pyarrow.RecordBatch`` of ``schema``.

    None of what is no range: Spark makes such a partition when a query has none. Raises as
    :meth:`RangeFetch.next`.
    """
    if not isinstance(partition, OffsetRange):
        return
    ours = connections(options.cluster)
    rows = RowsForSpark(schema)
    fetch = ours.thread.call(RangeFetch, ours.cluster, partition, options)
    try:
        while (batch := ours.run(fetch.next())) is not None:
            yield rows.convert(before(batch, partition.end), *partition.where)
    finally:
        if not ours.thread.is_closed:
            ours.run(fetch.close())
