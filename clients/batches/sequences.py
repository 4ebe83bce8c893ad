"""Batches made fit to be produced again, under their own producer's name or another's. Pure."""

from typing import NamedTuple

from qbus.records import read_header, set_base_offset
from qbus.records.crc import Buffer
from qbus.records.header import write_header

_NO_EPOCH = -1


class ProducerSequence(NamedTuple):
    """Whose batch it is, and the sequence of its first record (KIP-98)."""

    producer_id: int
    epoch: int
    base_sequence: int


def as_produced(batch: Buffer) -> bytearray:
    """A copy of a whole batch without its place in a log; all else stays, its producer too."""
    copy = bytearray(batch)
    set_base_offset(copy, 0, _NO_EPOCH)
    return copy


def with_sequence(batch: Buffer, sequence: ProducerSequence) -> bytearray:
    """A copy of a whole batch as if ``sequence`` had been its producer's, with its checksum anew.

    The records, compressed or not, stay as they are. Raises :class:`~qbus.records.CorruptBatch`
    for bytes that hold no header.
    """
    copy = as_produced(batch)
    producer_id, epoch, base_sequence = sequence
    header = read_header(copy)._replace(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
    )
    write_header(copy, header)
    return copy
