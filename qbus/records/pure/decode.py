"""Records to lists, in plain Python."""

from qbus.records.crc import Buffer
from qbus.records.header import BatchHeader
from qbus.records.parse import parse_records
from qbus.records.record import ConsumerRecord

_FIXED = 7  # what a record takes, at least, beside its key and its value


class Decoder:
    """The records of ``payload`` from ``from_offset`` on, some at a time."""

    def __init__(
        self, payload: Buffer, header: BatchHeader, topic: str, partition: int, from_offset: int
    ) -> None:
        self._records = parse_records(bytes(payload), header)
        self._where = (topic, partition)
        self._from_offset = from_offset

    def take(self, size: int) -> list[ConsumerRecord]:
        """Those of the next ``size`` bytes, about, but one at least; none: there are no more.

        The errors of ``parse_records``, without the records that were before the damage.
        """
        new_record, where = tuple.__new__, self._where
        records: list[ConsumerRecord] = []
        for record in self._records:
            size -= _FIXED + len(record[2] or b"") + len(record[3] or b"")
            if record[0] >= self._from_offset:
                records.append(new_record(ConsumerRecord, where + record))
            if size <= 0 and records:
                break
        return records
