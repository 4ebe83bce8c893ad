"""Records as columns, and those as an Arrow record batch."""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from qbus.records import codec
from qbus.records.crc import Buffer
from qbus.records.decode import records_of
from qbus.records.extras import import_pyarrow
from qbus.records.header import BatchHeader

if TYPE_CHECKING:
    from qbus.records.pure import BytesColumn, ColumnsBuffers


class RecordColumns:
    """Gathers the records of batches as columns, until they are made an Arrow batch.

    For one thread at a time.
    """

    def __init__(self) -> None:
        self.buffers: ColumnsBuffers = codec.twin.ColumnsBuffers()
        """The columns as Arrow lays them out."""
        self.is_shared = False
        """Whether an Arrow batch has the buffers: it must never change."""
        self._most = 0

    @property
    def rows(self) -> int:
        """How many records there are."""
        return self.buffers.rows

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take, or took before they were reused, for those are kept."""
        return max(self._most, self.buffers.nbytes)

    def reuse(self) -> bool:
        """Forget the records and keep the memory, for others; whether nobody has a part of it."""
        self._most = self.nbytes
        try:
            self.buffers.clear()
        except BufferError:
            return False
        self.is_shared = False
        return True

    def append(self, batch: Buffer, header: BatchHeader, from_offset: int = 0) -> int:
        """Append the records of one whole batch from ``from_offset`` on; how many they are.

        Raises :class:`CorruptBatch` as ``decode_records`` does, and OverflowError when a column
        would hold more than 2 GiB, which Arrow's offsets cannot tell; nothing is appended then.
        Raises BufferError once :func:`to_arrow` has shared the buffers.
        """
        if self.is_shared:
            raise BufferError("columns that were made an Arrow batch take no more records")
        payload = records_of(batch, header)
        return 0 if payload is None else self.buffers.extend(payload, header, from_offset)


def to_arrow(columns: RecordColumns, topic: str, partition: int) -> Any:
    """The columns as a ``pyarrow.RecordBatch``, which shares their memory.

    key and value (binary), headers (list<struct<key: string, value: binary>>), topic (dictionary of
    strings), partition (int32), offset (int64), timestamp (timestamp[ms, UTC]) and timestamp_type
    (int8). Raises MissingExtra without pyarrow.
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
            safe=False,  # or each index is looked at
        ),
        _constant(partition, rows),
        _fixed(buffers.offset, rows, pa.int64()),
        _fixed(buffers.timestamp, rows, pa.timestamp("ms", "UTC")),
        _fixed(buffers.timestamp_type, rows, pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())


@cache
def arrow_schema() -> Any:
    """The schema of what :func:`to_arrow` returns."""
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
    data = number.to_bytes(4, sys.byteorder, signed=True) * rows  # quicker than pyarrow.repeat
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
    """Names of headers: what is not UTF-8 in them is replaced, as Java's client does."""
    pa = import_pyarrow()
    names = _binary(column, pairs, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binary(column, pairs).to_pylist()
        return pa.array([name.decode(errors="replace") for name in raw], pa.string())
    return names
