"""Records of compacted topics need keys: what compaction could not tell apart is refused."""

from typing import Final

from qbus.records import Buffer, CorruptBatch, read_header
from qbus.records.compact import first_keyless
from qbus.records.decode import records_of
from qbus.records.header import ATTRIBUTES_AT

from ..log import RecordsRefusedError

_CODEC_BITS: Final = 0x07


def needs_thread(batch: Buffer) -> bool:
    """Whether :func:`check_keys` has to decompress the batch, which takes a while."""
    return len(batch) > ATTRIBUTES_AT and batch[ATTRIBUTES_AT] & _CODEC_BITS != 0


def check_keys(batch: Buffer) -> None:
    """Check that all records of a producer's batch have keys.

    Raises RecordsRefusedError, which names the first one without, and CorruptBatch for records that
    cannot be read. What is wrong with the batch as a whole is left to the append.
    """
    try:
        header = read_header(batch)
    except CorruptBatch:
        return
    if header.size != len(batch) or header.is_control or header.records_count < 0:
        return
    payload = records_of(batch, header)
    number = -1 if payload is None else first_keyless(payload, header)
    if number >= 0:
        raise RecordsRefusedError([(number, "it has no key, and the topic is compacted")])
