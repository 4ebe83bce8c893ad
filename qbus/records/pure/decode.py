"""Records to a list, in plain Python."""

from ..crc import Buffer
from ..header import BatchHeader
from ..parse import parse_records
from ..record import ConsumerRecord


def decode_list(
    payload: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int
) -> list[ConsumerRecord]:
    """The records of ``payload`` from ``from_offset`` on; the errors of ``parse_records``."""
    new_record = tuple.__new__
    where = (topic, partition)
    return [
        new_record(ConsumerRecord, where + record)
        for record in parse_records(bytes(payload), header)
        if record[0] >= from_offset
    ]
