"""Batch queries: ``spark.read.format("qbus")``."""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..errors import DataLoss, warn
from ..options import Options
from ..schema import check_source_schema
from .driver import Driver
from .fetch import read
from .loss import fixed_range
from .options import SourceOptions
from .planning import split
from .positions import check_order, ending, starting


class BatchReader(DataSourceReader):
    """Plans a batch query on the driver, and reads its ranges on the executors."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises :class:`~qbus.errors.ConfigError`; connects to nothing."""
        check_source_schema(schema)
        self._schema = schema
        self._options = SourceOptions.of(given)
        self._starting = starting(Options(given), is_batch=True)
        self._ending = ending(Options(given))
        check_order(self._starting, self._ending)

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, one for each task."""
        driver = Driver(self._options)
        logs = driver.logs()
        driver.check_all_there(logs)
        starts = driver.resolve(self._starting, logs)
        ends = driver.resolve(self._ending, logs)
        planned = [
            fixed_range(where, starts[where], ends[where], log)
            for where, log in sorted(logs.items())
        ]
        losses = [loss for _, lost in planned for loss in lost]
        if losses and self._options.fetch.fail_on_data_loss:
            raise DataLoss(losses)
        warn(losses)
        return list(
            split(
                [each for each, _ in planned],
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one range, as Arrow batches."""
        return read(partition, self._options.fetch, self._schema)
