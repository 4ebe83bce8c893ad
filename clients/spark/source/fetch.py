"""What a task does: fetches one range of offsets from the leader of its partition."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import CorruptBatch

from ...consumer.arrow import ArrowDecoder, ColumnPool
from ...consumer.assignment import Assignment
from ...consumer.corruption import readable_after
from ...consumer.fetch_buffer import FetchBuffer
from ...consumer.fetcher import Fetcher
from ...consumer.options import ConsumerOptions
from ...errors import LogTruncated, RequestTimedOut
from ...net.cluster import Cluster
from ...offsets import list_offsets
from ...types import EARLIEST
from ..connections import connections
from ..errors import DataLoss, warn
from .arrow import RowsForSpark, before
from .options import FetchOptions
from .planning import OffsetRange

_MAX_WAIT = 0.5
_RECHECK = 1.0
_RETRY_PAUSE = 0.1
"""Seconds between retries while the topic is not known."""
_MAX_MISMATCHES = 20
"""How often brokers may return another topic id: some learn of a new topic late."""


class RangeFetch:
    """Fetches the Arrow batches of a range in order; prefetches, but not past the end."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> None:
        self.wanted = wanted
        self._cluster = cluster
        self._options = options
        self._changed = asyncio.Event()
        self._assignment = Assignment()
        self._assignment.replace([wanted.where])
        self._assignment.seek(wanted.where, wanted.start)
        self._state = self._assignment.assigned(wanted.where)
        self._state.stop_at = wanted.end
        self._fetcher = Fetcher(
            cluster, self._assignment, _consumer_options(options), self._changed
        )
        self._buffer = FetchBuffer(self._assignment, self._fetcher.responses)
        self._columns = ColumnPool()
        self._trouble: QbusError | None = None
        self._mismatches = 0

    @property
    def position(self) -> int:
        """The next offset to read."""
        position = self._state.read_to
        assert position is not None, "the position is always set to an offset"
        return position

    async def next(self) -> Any | None:
        """The next ``pyarrow.RecordBatch``, or None at the end of the range.

        The last rows may lie beyond the range. Raises :class:`DataLoss` for lost records,
        :class:`~qbus.records.CorruptBatch` for corrupt ones, RequestTimedOut after ``patience``
        seconds without records, and brokers' errors.
        """
        deadline = time.monotonic() + self._options.patience
        while self.position < self.wanted.end:
            self._changed.clear()
            taken = await self._take()
            if taken:
                self._fetcher.start()
                return taken[0]
            if self.position >= self.wanted.end:
                break
            if time.monotonic() > deadline:
                self._time_out()
            elif await self._is_known():
                self._fetcher.start()
                await self._wait(_RECHECK)
            else:
                await asyncio.sleep(_RETRY_PAUSE)
        return None

    async def close(self) -> None:
        """Cancel requests in flight."""
        await self._fetcher.close()

    async def _take(self) -> list[Any]:
        self._buffer.close_cursors()  # a previous call may have been interrupted
        try:
            while cursors := self._buffer.open_cursors():
                self._fetcher.start()
                decoder = ArrowDecoder(cursors, self._columns)
                await decoder.decode_beside(self._options.rows)
                taken = decoder.batches()
                self._buffer.close_cursors()
                if taken:
                    return taken
        except CorruptBatch as error:
            await self._skip_corrupt(error)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._skip_lost(error)
        return []

    async def _skip_corrupt(self, error: CorruptBatch) -> None:
        """Skip a corrupt batch if records may be lost; else raise ``error``."""
        if self._options.fail_on_data_loss:
            raise error
        warn([f"{self.wanted}: {error}"])
        behind = await readable_after(self._cluster, self.wanted.where, self.position)
        self._assignment.seek(self.wanted.where, min(behind, self.wanted.end))

    async def _skip_lost(self, error: ApiError) -> None:
        """Skip lost records if that is allowed; else raise :class:`DataLoss`."""
        if self._options.fail_on_data_loss:
            raise DataLoss([f"{self.wanted}: {error}"]) from error
        where = self.wanted.where
        warn([f"{self.wanted}: {error}"])
        if isinstance(error, LogTruncated):  # the log goes on from here
            self._assignment.seek(where, self.position)
            return
        start = (await list_offsets(self._cluster, {where: EARLIEST}))[where].offset
        end = self.wanted.end
        self._assignment.seek(where, min(start, end) if start > self.position else end)

    async def _is_known(self) -> bool:
        """Whether the topic is known and has the planned id; otherwise retry."""
        topic = self.wanted.topic
        try:
            await self._cluster.need([topic])
            found = self._cluster.metadata.topic(topic)
        except ApiError as error:
            if not error.retriable:
                raise
            self._trouble = error
            return False
        self._trouble = None
        if str(found.topic_id) == self.wanted.topic_id:
            return True
        self._cluster.metadata.forget([topic])  # the metadata may be older than the plan
        self._mismatches += 1
        if self._mismatches > _MAX_MISMATCHES:
            self._lost(f"{self.wanted}: the topic was deleted and created again")
        return False

    def _lost(self, loss: str) -> None:
        """Skip the rest of the range if that is allowed; else raise :class:`DataLoss`."""
        if self._options.fail_on_data_loss:
            raise DataLoss([loss])
        warn([loss])
        self._assignment.seek(self.wanted.where, self.wanted.end)

    def _time_out(self) -> None:
        """Raise the reason why no records arrived, or skip the range."""
        at, end = self.position, self._state.end_offset
        trouble = self._trouble
        if trouble is None and 0 <= end <= at:
            self._lost(f"{self.wanted}: the log ends at offset {end}")
        elif isinstance(trouble, ApiError) and trouble.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._lost(f"{self.wanted}: {trouble}")
        else:
            reason = f": {trouble}" if trouble is not None else ""
            raise RequestTimedOut(
                f"{self.wanted}: no records at offset {at} in {self._options.patience} s{reason}."
                " Check that the partition's leader runs and that this executor can reach it; the"
                " option kafkaConsumer.pollTimeoutMs sets the time-out"
            ) from trouble

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


def _consumer_options(options: FetchOptions) -> ConsumerOptions:
    return ConsumerOptions(
        offset_reset="none",
        fetch_min_bytes=1,
        fetch_max_bytes=options.fetch_max_bytes,
        partition_max_bytes=options.partition_max_bytes,
        prefetch_bytes=options.prefetch_bytes,
        fetch_max_wait=_MAX_WAIT,
        max_poll_records=options.rows,
        check_crcs=options.check_crcs,
        read_committed=options.read_committed,
        rack=options.rack,
        auto_commit=None,
    )


def read(partition: InputPartition, options: FetchOptions, schema: StructType) -> Iterator[Any]:
    """Read a range as ``pyarrow.RecordBatch`` of ``schema``; raises as :meth:`RangeFetch.next`.

    An input partition that is not a range has no records: Spark creates one for an empty query.
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
