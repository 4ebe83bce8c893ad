"""Batches, and the records within them, out of bytes that nobody has vouched for."""

from collections.abc import Iterator

from qbus.records.compression import decompress
from qbus.records.crc import Buffer
from qbus.records.errors import CorruptBatch
from qbus.records.header import HEADER_SIZE, BatchHeader, Compression, read_header
from qbus.records.parse import parse_records
from qbus.records.record import Record

MAX_RECORDS_SIZE = 128 * 1024 * 1024
"""Bytes that the records of one batch may take, decompressed."""


def iter_batches(
    buf: Buffer, *, partial_tail: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches that lie one after another in ``buf``, each as its header and all its bytes.

    Raises :class:`CorruptBatch` for a bad header or a batch that is cut; with ``partial_tail`` a
    cut last batch ends the iteration quietly, as a fetch's size limit may leave one. CRCs are not
    checked.
    """
    view = memoryview(buf)
    pos = 0
    while pos < len(view):
        if partial_tail and len(view) - pos < HEADER_SIZE:
            return
        header = read_header(view, pos)
        end = pos + header.size
        if end > len(view):
            if partial_tail:
                return
            raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(view) - pos}")
        yield header, view[pos:end]
        pos = end


def iter_records(batch: Buffer, *, max_size: int = MAX_RECORDS_SIZE) -> Iterator[Record]:
    """The records of one whole batch, a control batch's markers included.

    Raises :class:`CorruptBatch` at the first byte that is not what it should be, or when the
    records take more than ``max_size`` bytes decompressed. The CRC is not checked.
    """
    header = read_header(batch)
    payload = records_of(batch, header, max_size)
    return iter(()) if payload is None else parse_records(bytes(payload), header)


def records_of(
    batch: Buffer, header: BatchHeader, max_size: int = MAX_RECORDS_SIZE
) -> bytes | memoryview | None:
    """The bytes of the records of one whole batch, decompressed; None when it holds no records.

    Raises :class:`CorruptBatch` when the batch is not of the size that its header says, or when
    the records take more than ``max_size`` bytes.
    """
    if header.size != len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes in {len(batch)}")
    if header.records_count < 0:
        raise CorruptBatch(f"impossible records count {header.records_count}")
    if header.records_count == 0:  # what compaction leaves of a batch
        return None
    records = memoryview(batch)[HEADER_SIZE:]
    if header.compression is Compression.NONE and len(records) <= max_size:
        return records
    return decompress(header.compression, records, max_size)
