"""Records to the buffers of Arrow columns, in plain Python; ``_columns.pxi`` is the same in C."""

from array import array

from qbus.records.header import BatchHeader, Buffer
from qbus.records.parse import parse_records
from qbus.records.record import Record

MAX_BYTES = (1 << 31) - 1
"""Maximum size in bytes of a column of variable length: Arrow's offsets have 32 bits."""


class BytesColumn:
    """Nullable values of variable length: their validity bits, their end offsets, their bytes."""

    def __init__(self) -> None:
        self.validity = bytearray()
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.null_count = 0

    @property
    def rows(self) -> int:
        """The number of values."""
        return len(self.offsets) - 1

    def clear(self) -> None:
        """Drop all values. Raises BufferError while somebody has a view of them."""
        _cut(self.validity, 0)
        _cut(self.data, 0)
        _cut(self.offsets, 1)
        self.null_count = 0

    def append(self, value: bytes | None) -> None:
        """Add a value."""
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
    """The columns of records, without those that are constant for a partition."""

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
        """Size of the columns in bytes."""
        parts = (self.key, self.value, self.header_key, self.header_value)
        return sum(
            len(part.validity) + 4 * len(part.offsets) + len(part.data) for part in parts
        ) + (4 * len(self.header_offsets) + 17 * self.rows)

    def clear(self) -> None:
        """Drop the records, keep the memory. Raises BufferError while somebody has a view of it."""
        for column in (self.key, self.value, self.header_key, self.header_value):
            column.clear()
        for numbers in (self.offset, self.timestamp, self.timestamp_type):
            _cut(numbers, 0)
        _cut(self.header_offsets, 1)
        self.rows = 0

    def extend(self, payload: Buffer, header: BatchHeader, from_offset: int) -> int:
        """Append the records of ``payload`` from ``from_offset`` on; return their number.

        Raises :class:`CorruptBatch`, and OverflowError if the columns might exceed their limit;
        nothing is appended then.
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
    """Keep the first ``length`` items. Raises BufferError while somebody has a view of them."""
    column.append(0)
    del column[length:]
