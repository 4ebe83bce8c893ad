"""What nearly every produced batch is: a plain one, without headers that matter. In one pass.

Compiled where there is a compiler (``_header.pyx``); the twin here is what runs elsewhere.
"""

import os
from array import array
from collections.abc import Callable
from typing import Final

from qbus.errors import CorruptBatch
from qbus.records.bounds import MAX_HEADERS
from qbus.records.fields import decode_varint
from qbus.records.header import (
    LENGTH_PREFIX,
    BatchHeader,
    Buffer,
    Compression,
    check_crc,
    read_header,
)

REVISION: Final = 6
"""What the compiled form offers; another number means that it was built from other sources."""


def portable_plain_header(batch: Buffer) -> BatchHeader | None:
    """Compute the same as :func:`plain_header`, on any machine."""
    try:
        header = read_header(batch)
        if header.size != len(batch):
            return None
        check_crc(batch, header)
    except CorruptBatch:
        return None
    is_plain = (
        header.batch_length + LENGTH_PREFIX == len(batch)
        and 0 <= header.attributes <= Compression.ZSTD
        and 0 <= header.last_offset_delta == header.records_count - 1
        and (header.producer_id < 0 or min(header.producer_epoch, header.base_sequence) >= 0)
    )
    return header if is_plain else None


def portable_may_have_header(payload: Buffer, count: int, prefix: bytes) -> bool:
    """Compute the same as :func:`may_have_header` of the compiled form, on any machine."""
    data, end = bytes(payload), 0
    try:
        for _ in range(count):
            length, pos = decode_varint(data, end)
            end = pos + length
            pos += 1  # attributes
            for _ in range(2):  # time and offset
                _, pos = decode_varint(data, pos)
            for _ in range(2):  # key and value
                pos = _skip(data, pos)
            headers, pos = decode_varint(data, pos)
            if not 0 <= headers <= MAX_HEADERS:
                return True
            for _ in range(headers):
                size, pos = decode_varint(data, pos)
                if size < 0 or data.startswith(prefix, pos, pos + size):
                    return True
                pos = _skip(data, pos + size)
                if pos > end:
                    return True
            if length < 1 or pos != end:
                return True
    except (IndexError, CorruptBatch):
        return True
    return end != len(data)


def _skip(data: bytes, pos: int) -> int:
    size, pos = decode_varint(data, pos)
    return pos + max(size, 0)


def portable_record_positions(payload: Buffer, count: int) -> "array[int]":
    """Compute the same as :func:`record_positions`, on any machine."""
    data, positions, position = bytes(payload), array("I", (0,)), 0
    if count < 0:
        raise CorruptBatch(f"there are no {count} records")
    try:
        for _ in range(count):
            length, position = decode_varint(data, position)
            if not 1 <= length <= len(data) - position:
                raise CorruptBatch("records are cut")
            position += length
            positions.append(position)
    except IndexError:
        raise CorruptBatch("records are cut") from None
    return positions


def _may_contain(payload: Buffer, count: int, prefix: bytes) -> bool:  # noqa: ARG001
    """What is quicker than to go over the records in Python."""
    return prefix in bytes(payload)


def _not_known(batch: Buffer, prefix: bytes, limit: int) -> bool:  # noqa: ARG001
    """What is always right: Python has no quicker way than that of :func:`may_have_header`."""
    return False


_Forms = tuple[
    Callable[[Buffer], BatchHeader | None],
    Callable[[Buffer, int, bytes], bool],
    Callable[[Buffer, bytes, int], bool],
    Callable[[Buffer, int], "array[int]"],
]


def _fastest() -> _Forms:
    portable = portable_plain_header, _may_contain, _not_known, portable_record_positions
    if os.environ.get("QBUS_CODEC") == "python":
        return portable
    try:
        from qbus.records import _header  # noqa: PLC0415 - it may not be there
    except ImportError:
        return portable
    if _header.REVISION != REVISION:
        return portable
    return (
        _header.plain_header,
        _header.may_have_header,
        _header.lacks_headers,
        _header.record_positions,
    )


_plain_header, _may_have_header, _lacks_headers, _record_positions = _fastest()


def plain_header(batch: Buffer) -> BatchHeader | None:
    """The header of ``batch``, if that is one whole plain batch.

    Plain is one with a right CRC whose counts agree, that belongs to no transaction, is no control
    batch, and has the timestamps that its producer gave. None is no refusal: it may be well, but is
    to be looked at more closely.
    """
    return _plain_header(batch)


def may_have_header(payload: Buffer, count: int, prefix: bytes) -> bool:
    """Whether any of ``count`` decompressed records may have a header that begins with ``prefix``.

    False is sure: they are whole, fill ``payload``, have none, and none has too many headers.
    """
    return _may_have_header(payload, count, prefix)


def lacks_headers(batch: Buffer, prefix: bytes, limit: int) -> bool:
    """Whether a batch surely has no record with a header that begins with ``prefix``.

    True is sure, and quicker than to decompress: its bytes are read as lz4 or snappy, and searched,
    but not kept. False says nothing: it may have one, or be malformed, or hold more than ``limit``
    bytes, or be in another codec, or there is no compiled form. Neither the records nor checksums
    of compressed data are looked at.
    """
    return _lacks_headers(batch, prefix, limit)


def record_positions(payload: Buffer, count: int) -> "array[int]":
    """Where each of ``count`` decompressed records begins, and where the last one ends.

    Raises CorruptBatch unless that many whole records are there.
    """
    return _record_positions(payload, count)
