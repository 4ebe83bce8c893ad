"""What one fetch request reads: many partitions, one limit for all of them (KIP-74).

Records are never copied: an answer carries a region of the log's file. What would wait for a disk,
or was not checked against its CRC yet, is *cold*: it is set aside, with its share of the limit, and
read in a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchResponse,
    PartitionData,
)

from ..log import LogSlice, VisibleRecords
from ..net.transport import SENDFILE_FROM
from ..partition.partition import Partition
from ..partition.purgatory import Delayed, Purgatory

NO_RECORDS: Final = b""  # an empty answer has length 0: clients do not take null
NO_OFFSET: Final = -1


class FetchWaiter(Protocol):
    """A fetch that waits for records in its targets."""

    def readable(self, size: int) -> None:
        """``size`` more bytes can be read; 0: look again at once."""


class FetchTarget:
    """One partition of a fetch request, and its answer. Watches the partition for a fetch.

    of_leader: only the leader may serve it.
    may_read: whether the client may read the topic, which may change while it waits; None: it may.
    """

    __slots__ = ("_of_leader", "_waiter", "data", "may_read", "partition", "wanted")

    def __init__(
        self,
        partition: Partition,
        wanted: FetchPartition,
        data: PartitionData,
        *,
        of_leader: bool = True,
    ) -> None:
        self.partition = partition
        self.wanted = wanted
        self.data = data
        self.may_read: Callable[[], bool] | None = None
        self._of_leader = of_leader
        self._waiter: FetchWaiter | None = None

    @property
    def limit(self) -> int:
        """The offset before which records may be read."""
        return self.partition.visible_end

    @property
    def high_watermark(self) -> int:
        """What the answer says of how far records are acknowledged: consumers' lag is up to it."""
        return self.partition.visible_end

    @property
    def last_stable_offset(self) -> int:
        """What the answer says of how far transactions have ended."""
        return self.partition.committed_end

    @property
    def sees_hidden(self) -> bool:
        """See :class:`~qbus.broker.partition.purgatory.Watcher`."""
        return False

    def read(
        self, max_bytes: int, min_one_batch: bool, *, wait: bool = False
    ) -> LogSlice | VisibleRecords | None:
        """The records from the offset that is asked for on. Raises as :meth:`Log.read` does."""
        return self.partition.log.read_visible(
            self.wanted.fetch_offset, max_bytes, self.limit, min_one_batch, wait=wait
        )

    def keep_aborted(self, records: LogSlice | VisibleRecords) -> None:
        """Take down which of ``records`` the client is not to count, if it asked for that."""

    def check(self) -> ErrorCode:
        """Return why this may not be read here in the leader epoch that the client knows, if so."""
        if self.may_read is not None and not self.may_read():
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = self.partition
        check = partition.check if self._of_leader else partition.check_readable
        return check(self.wanted.current_leader_epoch)

    def watch(self, waiter: FetchWaiter) -> None:
        """Tell ``waiter`` of what becomes visible."""
        self._waiter = waiter
        self.partition.watchers[self] = None

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._waiter = None
        self.partition.watchers.pop(self, None)

    def advanced(self, size: int) -> None:
        """The partition has ``size`` more bytes, or changed otherwise."""
        if self._waiter is not None:
            self._waiter.readable(size)

    def count(self) -> None:
        """Count the records of the answer as sent."""
        records = self.data.records
        if records:
            self.partition.bytes_out += len(records)

    def drop_records(self) -> None:
        """Release the records, to read them again later."""
        records = self.data.records
        if records:
            close(records)
            self.data.records = NO_RECORDS

    def fail(self, code: ErrorCode) -> None:
        """Answer with an error."""
        self.data.error_code = code
        self.data.records = NO_RECORDS


class CommittedFetchTarget(FetchTarget):
    """One for a consumer of committed records: up to the last stable offset.

    Records of aborted transactions are sent, too: the answer tells which transactions those are.
    """

    __slots__ = ()

    @property
    def limit(self) -> int:
        """The offset before which records may be read."""
        return self.partition.committed_end

    def keep_aborted(self, records: LogSlice | VisibleRecords) -> None:
        """Take down the aborted transactions that ``records`` may be of."""
        log = self.partition.log
        if log.has_transactions:
            self.data.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in log.aborted_between(self.wanted.fetch_offset, records.next_offset)
            ]

    def watch(self, waiter: FetchWaiter) -> None:
        """Tell ``waiter`` of what is committed."""
        self._waiter = waiter
        self.partition.committed_watchers[self] = None

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._waiter = None
        self.partition.committed_watchers.pop(self, None)

    def drop_records(self) -> None:
        """Release the records, to read them again later."""
        super().drop_records()
        self.data.aborted_transactions = []

    def fail(self, code: ErrorCode) -> None:
        """Answer with an error."""
        super().fail(code)
        self.data.aborted_transactions = []


class HiddenFetchTarget(FetchTarget):
    """One whose hidden batches are sent, too."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """The offset before which batches may be read."""
        return self.partition.high_watermark

    @property
    def high_watermark(self) -> int:
        """What the answer says of how far batches are acknowledged."""
        return self.partition.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """What the answer says of how far transactions have ended."""
        return self.partition.last_stable_offset

    @property
    def sees_hidden(self) -> bool:
        """See :class:`~qbus.broker.partition.purgatory.Watcher`."""
        return True

    def read(
        self, max_bytes: int, min_one_batch: bool, *, wait: bool = False
    ) -> LogSlice | VisibleRecords | None:
        """The batches from the offset that is asked for on. Raises as :meth:`Log.read` does."""
        return self.partition.log.read(
            self.wanted.fetch_offset, max_bytes, self.limit, min_one_batch, wait=wait
        )


def to_send(records: LogSlice | VisibleRecords) -> LogSlice | bytes:
    """What goes to the client: a region of a file, or bytes. Raises OSError.

    Bytes where hidden batches were left out, and where files are short: small regions, of which one
    response may have thousands, keep none open then.
    """
    if isinstance(records, LogSlice) and not (
        records.length < SENDFILE_FROM and records.segment.files_are_short()
    ):
        return records
    sent = records.read()
    records.close()
    return sent


def close(records: object) -> None:
    """Let go of the file that records of an answer are in, if they are in one."""
    if isinstance(records, LogSlice):
        records.close()


class FetchReader:
    """Reads targets in the order of the request until ``max_bytes`` are read.

    The first records found come as a whole batch, even where that is larger than every limit: else
    a consumer would never get past it.
    """

    __slots__ = ("_cold", "_remaining", "_served", "failed", "size")

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        self.failed = False
        self._remaining = max_bytes
        self._served: list[FetchTarget] = []
        self._cold: list[ColdRead] = []

    @property
    def cold(self) -> bool:
        """Whether :meth:`read_cold` has to run, in a thread."""
        return bool(self._cold)

    def read(self, target: FetchTarget) -> None:
        """Read what the target's answer can carry, without waiting for a disk."""
        wanted, data = target.wanted, target.data
        code = target.check()
        if code:
            self._fail(target, code)
            return
        log = target.partition.log
        offset, start, limit = wanted.fetch_offset, log.log_start_offset, target.limit
        data.high_watermark = target.high_watermark
        data.last_stable_offset = target.last_stable_offset
        data.log_start_offset = start
        if start <= offset < limit:
            self._read_log(target)
        elif not limit <= offset <= log.log_end_offset:
            self._fail(target, ErrorCode.OFFSET_OUT_OF_RANGE)

    def read_cold(self) -> None:
        """Read what is not in the page cache; waits for disks, so it runs in a thread."""
        for cold in self._cold:
            cold.read()

    def count(self) -> None:
        """Count what was read as sent. In the event loop: threads would miscount."""
        for target in self._served:
            target.count()

    def _read_log(self, target: FetchTarget) -> None:
        first = not self.size
        limit = max(min(target.wanted.partition_max_bytes, self._remaining), 0)
        if not limit and not first:
            return
        records: LogSlice | VisibleRecords | None = None
        try:
            records = target.read(limit, first)
            if records is None:
                return
            warm = not records.needs_verification and records.is_cached()
            if warm:
                target.keep_aborted(records)
                target.data.records = to_send(records)
        except BlockingIOError:
            warm = False
        except ApiError as error:
            self._fail(target, error.code)
            return
        except OSError:
            self._fail(target, ErrorCode.KAFKA_STORAGE_ERROR)
            return
        size = len(records) if records is not None else max(limit, 1)
        self.size += size
        self._remaining -= size
        self._served.append(target)
        if not warm:
            if isinstance(records, LogSlice) and records.segment.files_are_short():
                records.close()
                records = None  # read again when its turn comes: there may be thousands
            self._cold.append(ColdRead(target, limit, first, records))

    def _fail(self, target: FetchTarget, code: ErrorCode) -> None:
        self.failed = True
        target.fail(code)


class ColdRead:
    """A read that has to wait for the disk, with its share of the request's limit."""

    __slots__ = ("_first", "_limit", "_records", "_target")

    def __init__(
        self,
        target: FetchTarget,
        limit: int,
        first: bool,
        records: LogSlice | VisibleRecords | None,
    ) -> None:
        self._target = target
        self._limit = limit
        self._first = first
        self._records = records

    def read(self) -> None:
        """Find, check and load the records; corrupt ones are answered with an error."""
        try:
            records = self._records or self._target.read(self._limit, self._first, wait=True)
            if records is not None:
                self._records = records
                records.warm()
                self._target.keep_aborted(records)
                self._target.data.records = to_send(records)
        except ApiError as error:
            self._fail(error.code)
        except OSError:
            self._fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def _fail(self, code: ErrorCode) -> None:
        if self._records is not None:
            self._records.close()
        self._target.fail(code)


class FetchAnswer(Delayed[FetchResponse]):
    """A response to a fetch request that comes later; a thread may read its records."""

    __slots__ = ("_executor", "_purgatory")

    def __init__(self, purgatory: Purgatory, executor: Executor) -> None:
        super().__init__(purgatory.loop)
        self._purgatory = purgatory
        self._executor = executor

    def respond(self, response: FetchResponse, reader: FetchReader) -> None:
        """Answer with what ``reader`` read, after a thread has read what is not in memory."""
        if reader.cold:
            future = self._purgatory.loop.run_in_executor(self._executor, reader.read_cold)
            future.add_done_callback(partial(self._respond_after, response, reader))
        else:
            reader.count()
            self.answer(response)

    def _respond_after(
        self, response: FetchResponse, reader: FetchReader, read: asyncio.Future[None]
    ) -> None:
        error = asyncio.CancelledError() if read.cancelled() else read.exception()
        if self.done() or error is not None:
            _release_records(response)
        if isinstance(error, Exception):
            self.fail(error)
        elif error is not None:
            self.cancel()
        elif not self.done():
            reader.count()
            self.answer(response)


def _release_records(response: FetchResponse) -> None:
    for topic in response.responses:
        for data in topic.partitions:
            if data.records:
                close(data.records)


class DelayedFetch(FetchAnswer):
    """The response to a fetch request that cannot be answered at once.

    ``targets`` were read once and their answers are in ``response`` already. All are read again at
    the end of the wait, so that every field of the answer holds when it is sent. ``on_error`` is
    called with the response when a partition fails during the wait. The time that it waited for
    records is in ``waited_s``.
    """

    __slots__ = (
        "_max_bytes",
        "_min_bytes",
        "_on_error",
        "_readable_bytes",
        "_response",
        "_targets",
        "_waits_since",
        "_watching",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        executor: Executor,
        response: FetchResponse,
        targets: list[FetchTarget],
        max_bytes: int,
        on_error: Callable[[FetchResponse], None],
    ) -> None:
        super().__init__(purgatory, executor)
        self._response = response
        self._targets = targets
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._min_bytes = 0
        self._readable_bytes = 0
        self._watching = False
        self._waits_since = 0.0

    def wait(self, readable: int, min_bytes: int, seconds: float) -> None:
        """Wait at most ``seconds`` for ``min_bytes``, of which ``readable`` are there."""
        self._readable_bytes = readable
        self._min_bytes = min_bytes
        self._watching = True
        self._waits_since = perf_counter()
        for target in self._targets:
            target.drop_records()
            target.watch(self)
        self._purgatory.fetches.add(self, seconds)

    def readable(self, size: int) -> None:
        """Take in that ``size`` more bytes can be read; 0: look again at once."""
        self._readable_bytes += size
        if size == 0 or self._readable_bytes >= self._min_bytes:
            self._purgatory.schedule(self)

    def complete(self) -> None:
        """Read what changed, and answer."""
        self.leave()
        self.waited_s = perf_counter() - self._waits_since
        reader = FetchReader(self._max_bytes)
        for target in self._targets:
            reader.read(target)
        if reader.failed:
            self._on_error(self._response)
        self.respond(self._response, reader)

    def withdraw(self) -> None:
        """Stop watching the partitions."""
        if self._watching:
            self._watching = False
            for target in self._targets:
                target.unwatch()
