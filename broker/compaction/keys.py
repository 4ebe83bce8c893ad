"""Records of compacted topics need keys: what compaction could not tell apart is refused."""

from typing import Final

from qbus.records import Buffer, CorruptBatch, read_header
from qbus.records.compact import keyless
from qbus.records.decode import records_of
from qbus.records.header import ATTRIBUTES_AT

from ..log import MAX_NAMED, RecordsRefusedError

_CODEC_BITS: Final = 0x07
_NO_KEY: Final = "it has no key, and the topic is compacted"


def needs_thread(batch: Buffer) -> bool:
    """Whether :func:`check_keys` has to decompress the batch, which takes a while."""
    return len(batch) > ATTRIBUTES_AT and batch[ATTRIBUTES_AT] & _CODEC_BITS != 0


def check_keys(batch: Buffer) -> None:
    """Check that all records of a producer's batch have keys.

    Raises RecordsRefusedError, which names the records without one (up to :data:`MAX_NAMED`), and
    CorruptBatch for records that cannot be read. The append checks the batch as a whole.
    """
    try:
        header = read_header(batch)
    except CorruptBatch:
        return
    if header.size != len(batch) or header.is_control or header.records_count < 0:
        return
    payload = records_of(batch, header)
    refused = [] if payload is None else keyless(payload, header, MAX_NAMED)
    if refused:
        raise RecordsRefusedError([(number, _NO_KEY) for number in refused])
