"""All records of a batch at once, as a consumer wants them."""

from . import codec
from .crc import Buffer
from .decode import records_of
from .header import BatchHeader
from .record import ConsumerRecord


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
    return codec.twin.decode_list(payload, header, topic, partition, from_offset)
