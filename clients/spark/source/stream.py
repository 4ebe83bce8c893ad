"""Reading on and on: ``spark.readStream.format("qbus")``."""

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..errors import DataLoss, warn
from ..options import Options
from ..schema import check_source_schema
from .driver import Driver
from .fetch import read
from .loss import Onward, PartitionLogs, go_on, ranges, up_to
from .offsets import QueryOffsets
from .options import SourceOptions
from .planning import admit, backlog, split
from .positions import refuse_ending, starting

_SETTLING = 3.0
"""Seconds after which records that seem to be lost are."""
_PAUSE = 0.3


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their ranges on the executors.

    Spark asks for the latest offsets every few milliseconds while there are none: the answer waits
    at the brokers for some, for as long as the option ``qbus.idle.wait`` says.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises :class:`~qbus.errors.ConfigError`; connects to nothing."""
        check_source_schema(schema)
        refuse_ending(Options(given))
        self._schema = schema
        self._options = SourceOptions.of(given)
        self._starting = starting(Options(given), is_batch=False)
        self._driver: Driver | None = None
        self._initial: QueryOffsets | None = None
        self._target: PartitionLogs | None = None
        self._latest: QueryOffsets | None = None
        self._shown: Mapping[Any, int] = {}
        self._admitted_at = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query begins that has no checkpoint yet; always the same."""
        if self._initial is None:
            logs = self._driver_now.look()
            self._driver_now.check_all_there(logs)
            positions = self._driver_now.resolve(self._starting, logs)
            ids = {partition.topic: log.topic_id for partition, log in logs.items()}
            self._initial = QueryOffsets(uuid.uuid4().hex, ids, positions, begin=positions)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What the options say; Spark gives it back unless the trigger wants all."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only what there is now, in however many micro-batches."""
        self._target = self._driver_now.look()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` when there is nothing to read."""
        since = QueryOffsets.from_json(start)
        self._show(since)
        end = self._plan(since, limit)
        if end is None and self._target is None:
            self._driver_now.wait(self._ends)
            end = self._plan(since, limit)
        if end is None:
            return start
        self._admitted_at = time.monotonic()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """What there was to read when Spark last asked for offsets, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch, one for each task."""
        until = QueryOffsets.from_json(end)
        since = QueryOffsets.from_json(start)
        if until.begin is not None:  # the query's first batch knows better where it began
            since = QueryOffsets(until.query, until.ids, until.begin)
        if since.positions == until.positions and since.ids == until.ids:
            return []
        for logs in self._looks():
            found, losses = ranges(go_on(since, logs), until, logs)
            if not losses:
                break
        if losses and self._options.fetch.fail_on_data_loss:
            raise DataLoss(losses)
        warn(losses)
        return list(
            split(
                found,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records,
            )
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one range, as Arrow batches."""
        return read(partition, self._options.fetch, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Show how far the query has come."""
        self._show(QueryOffsets.from_json(end))

    def stop(self) -> None:
        """Ask the cluster nothing any more."""
        if self._driver is not None:
            self._driver.close()

    # Planning.

    @property
    def _driver_now(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options)
        return self._driver

    def _looks(self) -> Iterator[PartitionLogs]:
        """What there is, again and again: right after a failure brokers may tell of too little."""
        deadline = time.monotonic() + _SETTLING
        while True:
            yield self._driver_now.look()
            if time.monotonic() > deadline:
                return
            time.sleep(_PAUSE)

    @property
    def _ends(self) -> dict[Any, int]:
        return {} if self._latest is None else dict(self._latest.positions)

    def _plan(self, since: QueryOffsets, limit: ReadLimit) -> QueryOffsets | None:
        """Where a batch after ``since`` ends; None: there is nothing to read, or not enough yet."""
        for logs in self._looks():
            onward = go_on(since, logs)
            if not onward.losses:
                break
        if onward.losses and self._options.fetch.fail_on_data_loss:
            raise DataLoss(onward.losses)
        if self._target is not None:
            logs = up_to(self._target, since, onward, logs)
        ids = {partition.topic: log.topic_id for partition, log in logs.items()}
        ends = {partition: log.end for partition, log in logs.items()}
        self._latest = QueryOffsets(since.query, ids, ends)
        if not self._is_enough(onward, ends, limit):
            return None
        if isinstance(limit, ReadMaxRows):
            ends = admit(onward.positions, ends, limit.max_rows)
        if ends == since.positions and ids == since.ids:
            return None
        if not since.is_initial:
            return QueryOffsets(since.query, ids, ends)
        warn(onward.losses)  # nobody sees them later: the batch begins behind them
        begin = {partition: onward.positions[partition] for partition in ends}
        return QueryOffsets(since.query, ids, ends, begin)

    def _is_enough(self, onward: Onward, ends: Mapping[Any, int], limit: ReadLimit) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return True
        if time.monotonic() - self._admitted_at >= self._options.max_delay:
            return True
        return sum(backlog(onward.positions, ends).values()) >= least

    def _show(self, reached: QueryOffsets) -> None:
        """In the query's consumer group; the checkpoint alone is what the query goes by."""
        if reached.is_initial or reached.positions == self._shown:
            return
        self._shown = reached.positions
        group = self._options.group or f"{self._options.group_prefix}-{reached.query}"
        self._driver_now.show(group, reached.positions)
