"""Batches and their records, from untrusted bytes."""

from collections.abc import Callable, Iterator

from qbus.errors import CorruptBatch, OversizedBatch
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.compression import decompress
from qbus.records.header import HEADER_SIZE, BatchHeader, Buffer, Compression, read_header
from qbus.records.parse import parse_records
from qbus.records.record import Record


def iter_batches(
    buf: Buffer, *, partial_tail: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the adjacent batches in ``buf``, each as its header and all its bytes.

    Raises :class:`CorruptBatch` for a bad header or a truncated batch. With ``partial_tail``, a
    truncated last batch just ends the iteration: the size limit of a fetch may leave one. CRCs are
    not checked.
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
    """Iterate over the records of one whole batch, also of a control batch.

    Raises :class:`CorruptBatch` at the first malformed byte, and
    :class:`~qbus.errors.OversizedBatch` if the records exceed ``max_size`` bytes decompressed, or
    a record has too many headers. The CRC is not checked.
    """
    header = read_header(batch)
    payload = records_of(batch, header, max_size)
    return iter(()) if payload is None else parse_records(bytes(payload), header)


def iter_stored(batch: Buffer) -> Iterator[Record]:
    """Return what :func:`iter_records` returns, within the bounds of a broker."""
    return iter_records(batch, max_size=most_bytes(len(batch)))


def records_of(
    batch: Buffer,
    header: BatchHeader,
    max_size: int = MAX_RECORDS_SIZE,
    expand: Callable[[Compression, Buffer, int], bytes | memoryview] = decompress,
) -> bytes | memoryview | None:
    """Return the decompressed bytes of the records of one whole batch, or None without records.

    ``expand`` may be :func:`~qbus.records.compression.peek`, for a look at them.

    Raises :class:`CorruptBatch` if the batch does not have the size that its header says, and
    :class:`~qbus.errors.OversizedBatch` if the records exceed ``max_size`` bytes.
    """
    if header.size != len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes in {len(batch)}")
    if header.records_count < 0:
        raise CorruptBatch(f"impossible records count {header.records_count}")
    if header.records_count == 0:  # compaction may leave such a batch
        return None
    records = memoryview(batch)[HEADER_SIZE:]
    if header.compression is Compression.NONE:
        if len(records) > max_size:
            raise OversizedBatch(f"records of {len(records)} bytes are larger than {max_size}")
        return records
    return expand(header.compression, records, max_size)


def bounded_records_of(batch: Buffer, header: BatchHeader) -> bytes | memoryview | None:
    """Return what :func:`records_of` returns, within the bounds of a broker.

    Raises as :func:`records_of`.
    """
    return records_of(batch, header, most_bytes(len(batch)))
