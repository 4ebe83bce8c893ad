"""Records of compacted topics need keys: what compaction could not tell apart is refused."""

from typing import Final

from qbus.records import Buffer, CorruptBatch, read_header
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.compact import keyless
from qbus.records.decode import records_of
from qbus.records.header import ATTRIBUTES_AT, CODEC_BITS

from ..log import MAX_NAMED, RecordsRefusedError

_AT_ONCE: Final = 1 << 20  # bytes of records that the event loop looks through: a few milliseconds
_NO_KEY: Final = "it has no key, and the topic is compacted"


def needs_thread(batch: Buffer) -> bool:
    """Whether :func:`check_keys` takes a while: the batch is compressed, or large."""
    size = len(batch)
    return size > _AT_ONCE or (size > ATTRIBUTES_AT and batch[ATTRIBUTES_AT] & CODEC_BITS != 0)


def check_keys(batch: Buffer, ceiling: int = MAX_RECORDS_SIZE) -> None:
    """Check that all records of a producer's batch have keys.

    ``ceiling``: the bytes that its records may take at most, decompressed. Raises
    RecordsRefusedError, which names the records without one (up to :data:`MAX_NAMED`), and
    CorruptBatch for records that cannot be read, an OversizedBatch beyond the bounds. The append
    checks the batch as a whole.
    """
    try:
        header = read_header(batch)
    except CorruptBatch:
        return
    if header.size != len(batch) or header.is_control or header.records_count < 0:
        return
    payload = records_of(batch, header, most_bytes(len(batch), ceiling))
    refused = [] if payload is None else keyless(payload, header, MAX_NAMED)
    if refused:
        raise RecordsRefusedError([(number, _NO_KEY) for number in refused])
