"""The records of a batch as a consumer wants them."""

from collections.abc import Iterator

from qbus.records import codec
from qbus.records.crc import Buffer
from qbus.records.decode import records_of
from qbus.records.header import BatchHeader
from qbus.records.record import ConsumerRecord


def decode_records(
    batch: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int = 0
) -> list[ConsumerRecord]:
    """The records of one whole batch from ``from_offset`` on, a control batch's markers included.

    Raises :class:`CorruptBatch` at the first byte that is not what it should be, or when the
    records take more than ``MAX_RECORDS_SIZE`` bytes decompressed. The CRC is not checked.
    """
    payload = records_of(batch, header)
    if payload is None:
        return []
    decoder = codec.twin.Decoder(payload, header, topic, partition, from_offset)
    return decoder.take(len(payload) + 1)  # beyond the end, so that what is missing there is missed


def decode_some(
    batch: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int, size: int
) -> Iterator[list[ConsumerRecord]]:
    """The same records, those of about ``size`` bytes at a time.

    Raises the same, when it comes to the damage.
    """
    payload = records_of(batch, header)
    if payload is None:
        return
    decoder = codec.twin.Decoder(payload, header, topic, partition, from_offset)
    while records := decoder.take(size):
        yield records
