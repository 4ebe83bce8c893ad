"""Records to the buffers of Arrow columns, in plain Python."""

from array import array

from qbus.records.crc import Buffer
from qbus.records.header import BatchHeader
from qbus.records.parse import parse_records
from qbus.records.record import Record

MAX_BYTES = (1 << 31) - 1
"""Bytes that one column of variable length may hold: Arrow's offsets are of 32 bits."""


class BytesColumn:
    """Values of variable length, or null: a bit for each, where each ends, and their bytes."""

    def __init__(self) -> None:
        self.validity = bytearray()
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.null_count = 0

    @property
    def rows(self) -> int:
        """How many values there are."""
        return len(self.offsets) - 1

    def clear(self) -> None:
        """Forget all of them; raises BufferError while others look at them."""
        _cut(self.validity, 0)
        _cut(self.data, 0)
        _cut(self.offsets, 1)
        self.null_count = 0

    def append(self, value: bytes | None) -> None:
        """Add one."""
        index = self.rows
        if not index & 7:
            self.validity.append(0)
        if value is None:
            self.null_count += 1
        else:
            self.validity[-1] |= 1 << (index & 7)
            self.data += value
        self.offsets.append(len(self.data))


class ColumnsBuffers:
    """The columns of records: what they have in common with others is not among them."""

    def __init__(self) -> None:
        self.rows = 0
        self.key = BytesColumn()
        self.value = BytesColumn()
        self.header_offsets = array("i", [0])
        self.header_key = BytesColumn()
        self.header_value = BytesColumn()
        self.offset = array("q")
        self.timestamp = array("q")
        self.timestamp_type = array("b")

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take."""
        parts = (self.key, self.value, self.header_key, self.header_value)
        return sum(
            len(part.validity) + 4 * len(part.offsets) + len(part.data) for part in parts
        ) + (4 * len(self.header_offsets) + 17 * self.rows)

    def clear(self) -> None:
        """Forget the records and keep the memory; raises BufferError while others look at it."""
        for column in (self.key, self.value, self.header_key, self.header_value):
            column.clear()
        for numbers in (self.offset, self.timestamp, self.timestamp_type):
            _cut(numbers, 0)
        _cut(self.header_offsets, 1)
        self.rows = 0

    def extend(self, payload: Buffer, header: BatchHeader, from_offset: int) -> int:
        """Append the records of ``payload`` from ``from_offset`` on; how many they are.

        Raises :class:`CorruptBatch`, and OverflowError when the columns may outgrow their limit;
        then nothing was appended.
        """
        columns = (self.key, self.value, self.header_key, self.header_value)
        longest = max(self.header_key.rows, *(len(column.data) for column in columns))
        if longest + len(payload) > MAX_BYTES:
            raise OverflowError(f"columns of more than {MAX_BYTES} bytes")
        records = [
            record
            for record in parse_records(bytes(payload), header)
            if record.offset >= from_offset
        ]
        for record in records:
            self._append(record)
        self.rows += len(records)
        return len(records)

    def _append(self, record: Record) -> None:
        self.key.append(record.key)
        self.value.append(record.value)
        for name, value in record.headers:
            self.header_key.append(name.encode())
            self.header_value.append(value)
        self.header_offsets.append(self.header_key.rows)
        self.offset.append(record.offset)
        self.timestamp.append(record.timestamp)
        self.timestamp_type.append(record.timestamp_type)


def _cut(column: "bytearray | array[int]", length: int) -> None:
    """Keep the first so many items; raises BufferError while others look at them."""
    column.append(0)
    del column[length:]
