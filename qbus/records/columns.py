"""Records as columns, and columns as an Arrow record batch."""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from qbus.records import codec
from qbus.records.arrow_buffers import import_pyarrow
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.records.decode import records_of
from qbus.records.header import BatchHeader, Buffer

if TYPE_CHECKING:
    from qbus.records.pure import BytesColumn, ColumnsBuffers


class RecordColumns:
    """Collects the records of batches as columns, for one Arrow batch. Not thread-safe."""

    def __init__(self) -> None:
        self.buffers: ColumnsBuffers = codec.twin.ColumnsBuffers()
        """The columns in Arrow's layout."""
        self.is_shared = False
        """Whether an Arrow batch uses the buffers, which must not change then."""
        self._most = 0

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.buffers.rows

    @property
    def nbytes(self) -> int:
        """Size of the columns in bytes, or before :meth:`reuse`, which keeps the memory."""
        return max(self._most, self.buffers.nbytes)

    def reuse(self) -> bool:
        """Drop the records and keep the memory. Returns False if an Arrow batch still uses it."""
        self._most = self.nbytes
        try:
            self.buffers.clear()
        except BufferError:
            return False
        self.is_shared = False
        return True

    def append(
        self,
        batch: Buffer,
        header: BatchHeader,
        from_offset: int = 0,
        max_size: int = MAX_RECORDS_SIZE,
    ) -> int:
        """Append the records of one whole batch from ``from_offset`` on; return their number.

        They may take ``max_size`` bytes, decompressed.

        Raises :class:`CorruptBatch` as ``decode_records`` does, and OverflowError if a column would
        exceed 2 GiB, the limit of Arrow's offsets; nothing is appended then. Raises BufferError
        after :func:`to_arrow`.
        """
        if self.is_shared:
            raise BufferError("columns that were made an Arrow batch take no more records")
        payload = records_of(batch, header, max_size)
        return 0 if payload is None else self.buffers.extend(payload, header, from_offset)


def to_arrow(columns: RecordColumns, topic: str, partition: int) -> Any:
    """Return the columns as a ``pyarrow.RecordBatch``, which shares their memory.

    Its columns: key and value (binary), headers (list<struct<key: string, value: binary>>), topic
    (dictionary of strings), partition (int32), offset (int64), timestamp (timestamp[ms, UTC]) and
    timestamp_type (int8). Raises MissingExtra without pyarrow.
    """
    pa = import_pyarrow()
    columns.is_shared = True
    buffers, rows = columns.buffers, columns.rows
    arrays = [
        _binary(buffers.key, rows),
        _binary(buffers.value, rows),
        _headers(buffers, rows),
        pa.DictionaryArray.from_arrays(
            _constant(0, rows),
            pa.array([topic], pa.string()),
            safe=False,  # do not check each index
        ),
        _constant(partition, rows),
        _fixed(buffers.offset, rows, pa.int64()),
        _fixed(buffers.timestamp, rows, pa.timestamp("ms", "UTC")),
        _fixed(buffers.timestamp_type, rows, pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())


@cache
def arrow_schema() -> Any:
    """Return the schema of the batches of :func:`to_arrow`."""
    pa = import_pyarrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestamp_type", pa.int8()),
        ]
    )


def _constant(number: int, rows: int) -> Any:
    pa = import_pyarrow()
    data = number.to_bytes(4, sys.byteorder, signed=True) * rows  # faster than pyarrow.repeat
    return _fixed(data, rows, pa.int32())


def _fixed(data: Any, rows: int, kind: Any) -> Any:
    pa = import_pyarrow()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary(column: "BytesColumn", rows: int, kind: Any = None) -> Any:
    pa = import_pyarrow()
    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), rows, buffers, column.null_count)


def _headers(buffers: "ColumnsBuffers", rows: int) -> Any:
    pa = import_pyarrow()
    kind = arrow_schema().field("headers").type
    pairs = buffers.header_key.rows
    arrays = [_names(buffers.header_key, pairs), _binary(buffers.header_value, pairs)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    offsets = [None, pa.py_buffer(buffers.header_offsets)]
    return pa.Array.from_buffers(kind, rows, offsets, 0, children=[structs])


def _names(column: "BytesColumn", pairs: int) -> Any:
    """Return the names of headers; bytes that are not UTF-8 are replaced, as Java's client does."""
    pa = import_pyarrow()
    names = _binary(column, pairs, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binary(column, pairs).to_pylist()
        return pa.array([name.decode(errors="replace") for name in raw], pa.string())
    return names
