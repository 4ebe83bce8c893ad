"""Streaming queries: ``spark.readStream.format("qbus")``."""

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

_LOSS_CONFIRMED = 3.0
"""Seconds after which apparent data loss is real; right after a fail-over brokers may lag."""
_PAUSE = 0.3
_RANDOM_DIGITS = 8


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their ranges on the executors.

    An idle Spark query asks for the latest offsets every few milliseconds. The answer therefore
    waits at the brokers for new records, for up to the option ``qbus.idle.wait``.
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
        self._committed: Mapping[Any, int] = {}
        self._admitted_at = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            logs = self._driver_now.logs()
            self._driver_now.check_all_there(logs)
            positions = self._driver_now.resolve(self._starting, logs)
            ids = {partition.topic: log.topic_id for partition, log in logs.items()}
            self._initial = QueryOffsets(self._new_name(), ids, positions, begin=positions)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit in the options, which Spark passes back unless the trigger reads everything."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only the records that exist now, in any number of micro-batches."""
        self._target = self._driver_now.logs()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` when there is nothing to read."""
        since = QueryOffsets.from_json(start)
        self._commit(since)
        end = self._plan(since, limit)
        if end is None and self._target is None:
            self._driver_now.wait(self._ends)
            end = self._plan(since, limit)
        if end is None:
            return start
        self._admitted_at = time.monotonic()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of the logs when Spark last asked for offsets, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a micro-batch, one for each task."""
        until = QueryOffsets.from_json(end)
        since = QueryOffsets.from_json(start)
        if until.begin is not None:  # the first batch has its own start
            since = QueryOffsets(until.query, until.ids, until.begin)
        if since.positions == until.positions and since.ids == until.ids:
            return []
        for logs in self._repeated_logs():
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
        """Commit the query's offsets for monitoring."""
        self._commit(QueryOffsets.from_json(end))

    def stop(self) -> None:
        """Stop requests to the cluster."""
        if self._driver is not None:
            self._driver.close()

    # Planning.

    def _new_name(self) -> str:
        """A name of a new query, for its consumer group: what it reads, and random digits."""
        return f"{self._options.subscription.label}-{uuid.uuid4().hex[:_RANDOM_DIGITS]}"

    @property
    def _driver_now(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options)
        return self._driver

    def _repeated_logs(self) -> Iterator[PartitionLogs]:
        """The bounds of the logs, read again and again while they may lag after a fail-over."""
        deadline = time.monotonic() + _LOSS_CONFIRMED
        while True:
            yield self._driver_now.logs()
            if time.monotonic() > deadline:
                return
            time.sleep(_PAUSE)

    @property
    def _ends(self) -> dict[Any, int]:
        return {} if self._latest is None else dict(self._latest.positions)

    def _plan(self, since: QueryOffsets, limit: ReadLimit) -> QueryOffsets | None:
        """The end of a batch after ``since``; None: nothing to read, or not enough yet."""
        for logs in self._repeated_logs():
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
        warn(onward.losses)  # reported here only: the batch begins after them
        begin = {partition: onward.positions[partition] for partition in ends}
        return QueryOffsets(since.query, ids, ends, begin)

    def _is_enough(self, onward: Onward, ends: Mapping[Any, int], limit: ReadLimit) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return True
        if time.monotonic() - self._admitted_at >= self._options.max_delay:
            return True
        return sum(backlog(onward.positions, ends).values()) >= least

    def _commit(self, reached: QueryOffsets) -> None:
        """Commit the offsets to the query's group; the query itself relies on its checkpoint."""
        if reached.is_initial or reached.positions == self._committed:
            return
        self._committed = reached.positions
        group = self._options.group or f"{self._options.group_prefix}-{reached.query}"
        self._driver_now.commit(group, reached)
