"""The batches that were wanted, out of what a fetch brought. Pure."""

from collections.abc import Iterator

from qbus.records import BatchHeader, CorruptBatch, check_crc, iter_batches
from qbus.records.crc import Buffer


def whole_batches(
    records: Buffer, start: int, end: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches that reach into ``start`` to ``end`` (None: to the last), in order.

    One that is cut at the end is left out. Raises :class:`~qbus.records.CorruptBatch` at the first
    whose checksum or offsets cannot be right.
    """
    reached = start
    for header, batch in iter_batches(records, partial_tail=True):
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"impossible last offset delta {header.last_offset_delta}")
        if header.last_offset < start:
            continue
        if end is not None and header.base_offset >= end:
            return
        if header.base_offset < reached and reached > start:
            raise CorruptBatch(f"a batch at {header.base_offset} after one to {reached - 1}")
        check_crc(batch, header)
        reached = header.last_offset + 1
        yield header, batch
