"""Batches that are small on the wire and enormous when decompressed, and one of countless records.

The payload is one record with an endless value, so that every codec meets its best case.
"""

import struct
import zlib
from collections.abc import Callable, Mapping

import cramjam
import lz4.frame
import zstandard

from qbus.records import Compression, crc32c
from qbus.records.fields import encode_varint

_PIECE = bytes(1024 * 1024)
_HEADER = struct.Struct(">qiibIhiqqqhii")


def bomb(codec: Compression, size: int) -> bytes:
    """One batch whose only record has a value of ``size`` zeros."""
    fields = b"\0\0\0\1" + encode_varint(size)
    start = encode_varint(len(fields) + size + 1) + fields
    return _batch(codec, _PACK[codec](start, len(start) + size + 1), count=1)


def swarm(codec: Compression, count: int) -> bytes:
    """A batch of ``count`` records of the smallest size."""
    records = bytearray()
    for delta in range(count):
        body = b"\0\0" + encode_varint(delta) + b"\1\1\0"
        records += encode_varint(len(body)) + body
    packed = _PACK[codec](bytes(records), len(records))
    return _batch(codec, packed, count=count)


def _batch(codec: Compression, payload: bytes, count: int) -> bytes:
    now = 1_700_000_000_000
    length = _HEADER.size - 12 + len(payload)
    fields = (codec.value, count - 1, now, now, -1, -1, -1, count)
    batch = bytearray(_HEADER.pack(0, length, 0, 2, 0, *fields)) + payload
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def _pieces(start: bytes, size: int) -> list[bytes]:
    whole, rest = divmod(size - len(start), len(_PIECE))
    return [start, *[_PIECE] * whole, bytes(rest)]


def _gzip(start: bytes, size: int) -> bytes:
    """A stretch of zeros is compressed once and repeated: nobody gets to the trailer."""
    first, *pieces, rest = _pieces(start, size)
    packer = zlib.compressobj(1, wbits=31)
    head = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
    if pieces:
        head += (packer.compress(_PIECE) + packer.flush(zlib.Z_FULL_FLUSH)) * len(pieces)
    return head + packer.compress(rest) + packer.flush()


def _snappy(start: bytes, size: int) -> bytes:
    """In the framing of Java's clients, whose blocks may be of any size."""

    def block(data: bytes) -> bytes:
        packed = bytes(cramjam.snappy.compress_raw(data))
        return struct.pack(">i", len(packed)) + packed

    first, *pieces, rest = _pieces(start, size)
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + block(first) + block(_PIECE) * len(pieces) + block(rest)


def _lz4(start: bytes, size: int) -> bytes:
    with lz4.frame.LZ4FrameCompressor(block_linked=False) as packer:
        packed = [packer.begin(), *map(packer.compress, _pieces(start, size)), packer.flush()]
    return b"".join(packed)


def _zstd(start: bytes, size: int) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(map(packer.compress, _pieces(start, size))) + packer.flush()


_PACK: Mapping[Compression, Callable[[bytes, int], bytes]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
