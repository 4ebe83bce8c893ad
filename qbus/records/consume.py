"""The records of a batch as lists, for consumers."""

from collections.abc import Iterator

from qbus.records import codec
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.decode import records_of
from qbus.records.header import BatchHeader, Buffer
from qbus.records.record import ConsumerRecord

_SLICE = 64 * 1024


def decode_records(
    batch: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int = 0
) -> list[ConsumerRecord]:
    """Return the records of one whole batch from ``from_offset`` on, also of a control batch.

    Raises :class:`CorruptBatch` at the first malformed byte, or if the records exceed
    ``MAX_RECORDS_SIZE`` bytes decompressed. The CRC is not checked.
    """
    payload = records_of(batch, header)
    if payload is None:
        return []
    decoder = codec.twin.Decoder(payload, header, topic, partition, from_offset)
    return decoder.take(len(payload) + 1)  # beyond the end: then missing records are an error


def decode_some(
    batch: Buffer,
    header: BatchHeader,
    topic: str,
    partition: int,
    from_offset: int,
    size: int,
    max_size: int = MAX_RECORDS_SIZE,
) -> Iterator[list[ConsumerRecord]]:
    """Yield the same records, those of about ``size`` bytes at a time.

    Raises the same errors, after the records before the damage, and
    :class:`~qbus.errors.OversizedBatch` if they exceed ``max_size`` bytes decompressed.
    """
    payload = records_of(batch, header, max_size)
    if payload is None:
        return
    decoder = codec.twin.Decoder(payload, header, topic, partition, from_offset)
    while records := decoder.take(size):
        yield records


def decode_stored(
    batch: Buffer, header: BatchHeader, from_offset: int = 0
) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of a batch of a broker's log, few at a time: other threads run between.

    Topic and partition are not set. Raises :class:`CorruptBatch`, which is an
    :class:`~qbus.errors.OversizedBatch` beyond the bounds of a broker.
    """
    return decode_some(batch, header, "", 0, from_offset, _SLICE, most_bytes(len(batch)))
