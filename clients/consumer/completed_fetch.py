"""The batches that one fetch returned of one partition, decoded bit by bit."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from qbus.records import (
    BatchHeader,
    ConsumerRecord,
    CorruptBatch,
    RecordColumns,
    check_crc,
    decode_some,
    iter_batches,
)
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.wire.messages.fetch import AbortedTransaction

from ..types import TopicPartition
from .transactions import AbortedProducers

AT_ONCE = 256 * 1024
"""Bytes of records decoded at a time: few enough to be in the cache when they are read."""


class CompletedFetch:
    """Whole batches, decoded only as they are read.

    ``position`` is the offset after what was decoded, ``epoch`` the leader epoch of the record
    before it (-1: not known), ``next_offset`` the offset after everything fetched, ``topic_id``
    the id of the topic (None: the broker names none).
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        data: memoryview,
        *,
        check_crcs: bool,
        aborted: Sequence[AbortedTransaction] = (),
        max_size: int = MAX_RECORDS_SIZE,
        topic_id: UUID | None = None,
    ) -> None:
        """``aborted``: the transactions whose records are hidden (read_committed).

        ``max_size``: how many bytes the records of a batch may take, decompressed.
        """
        self._max_size = max_size
        self.partition = partition
        self.topic_id = topic_id
        self.position = position
        self.epoch = -1
        self.is_exhausted = False
        self.nbytes = len(data)
        self.next_offset = _end_of(data, position)
        self._batches = self._visible(data, check_crcs, AbortedProducers(aborted))
        self._batch: tuple[BatchHeader, memoryview] | None = None
        self._chunks: Iterator[list[ConsumerRecord]] = iter(())
        self._records: list[ConsumerRecord] = []
        self._returned = 0
        self._error: CorruptBatch | None = None

    def decode(self, limit: int) -> list[ConsumerRecord]:
        """Return up to ``limit`` records; none when there are no more.

        Raises :class:`~qbus.records.CorruptBatch` once all records before the damage were returned.
        """
        while not self._records:
            if not self._decode_next():
                return []
        end = self._returned + limit
        records = self._records[self._returned : end]
        self._returned = end
        if end >= len(self._records):
            self._records, self._returned = [], 0
        self.position = records[-1].offset + 1
        return records

    def decode_columns(self, columns: RecordColumns, limit: int) -> None:
        """Append whole batches to ``columns`` until they hold ``limit`` records or no batch is
        left.

        Stops early where the columns would outgrow their limit. Raises as :meth:`decode`, before it
        appends anything.
        """
        while columns.rows < limit:
            found = self._batch or self._next(has_decoded=columns.rows > 0)
            if found is None:
                return
            header, batch = found
            try:
                columns.append(batch, header, self.position, self._max_size)
            except CorruptBatch as error:
                self._fail(error, has_decoded=columns.rows > 0)
                return
            except OverflowError:  # no room beside the batches before
                if not columns.rows:
                    raise
                self._begin_batch(header, batch)
                return
            self._end_batch(header)

    def _decode_next(self) -> bool:
        """Decode some; return whether there was more to decode, perhaps no records."""
        if self._batch is None:
            found = self._next(has_decoded=False)
            if found is None:
                return False
            self._begin_batch(*found)
        assert self._batch is not None
        try:
            chunk = next(self._chunks, None)
        except CorruptBatch as error:
            self._fail(error, has_decoded=False)
            return False
        except BaseException:  # such as MemoryError: try again next time
            self._begin_batch(*self._batch)
            raise
        if chunk is None:
            self._end_batch(self._batch[0])
        else:
            self._records = chunk
        return True

    def _begin_batch(self, header: BatchHeader, batch: memoryview) -> None:
        self._batch = header, batch
        self._chunks = decode_some(
            batch, header, *self.partition, self.position, AT_ONCE, self._max_size
        )

    def _end_batch(self, header: BatchHeader) -> None:
        self._batch, self._records, self._returned = None, [], 0
        self.position = header.last_offset + 1

    def _next(self, has_decoded: bool) -> tuple[BatchHeader, memoryview] | None:
        if self._error is not None:
            self._fail(self._error, has_decoded)
            return None
        try:
            found = next(self._batches, None)
        except CorruptBatch as error:
            self._fail(error, has_decoded)
            return None
        if found is None:
            self.is_exhausted = True
            self.position = max(self.position, self.next_offset)
        return found

    def _fail(self, error: CorruptBatch, has_decoded: bool) -> None:
        """Raise now, or at the next call if records were decoded before the damage."""
        self._error, self._batch = error, None
        if not has_decoded:
            self.is_exhausted = True
            raise error

    def _visible(
        self, data: memoryview, check_crcs: bool, aborted: AbortedProducers
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        for header, batch in iter_batches(data, partial_tail=True):
            if check_crcs:
                check_crc(batch, header)
            if header.last_offset_delta < 0:
                raise CorruptBatch(f"impossible last offset delta {header.last_offset_delta}")
            hidden = aborted.hides(header, batch)
            if header.last_offset < self.position:
                continue
            self.epoch = header.partition_leader_epoch
            if hidden:
                self.position = header.last_offset + 1
            else:
                yield header, batch


def _end_of(data: memoryview, position: int) -> int:
    """Return the offset after the last whole batch, as far as the headers make sense."""
    try:
        for header, _ in iter_batches(data, partial_tail=True):
            position = max(position, header.last_offset + 1)
    except CorruptBatch:
        pass  # decoding reports it
    return position
