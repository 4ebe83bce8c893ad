"""The four compressions of record batches, in the framings that Kafka's clients read.

- gzip: RFC 1952, one member.
- snappy: Java's clients write xerial framing (snappy-java, ``SnappyOutputStream``): a magic, two
  versions, then raw blocks, each after its length. librdkafka writes raw snappy. We write xerial
  framing and read both.
- lz4: the LZ4 frame format with independent blocks; Java's reader refuses linked blocks.
- zstd: RFC 8878 (KIP-110).

Decompression stops with an error as soon as the output exceeds its limit, so a bomb uses no more
memory than twice that (the pieces, and the whole). Each package is imported at its first use: most
brokers never decompress.
"""
# ruff: noqa: PLC0415

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from qbus.errors import CorruptBatch, OversizedBatch
from qbus.records.header import Buffer, Compression

if TYPE_CHECKING:
    import zstandard

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_GZIP_WINDOW = 31  # zlib's number for "a gzip member with the largest window"

_XERIAL_HEADER = struct.pack(">8sii", b"\x82SNAPPY\0", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_EXPANSION = 4  # a usual ratio of decompressed to compressed bytes
_LEAST_READ = 4096
_MOST_READ = 4 * 1024 * 1024  # at once: an allocation and a copy hold up the other threads
_LZ4_RATIO = 256  # a byte stands for at most 255: what is short enough needs no limit
_LZ4_SHORT = 32 * 1024  # in one call is faster up to here
_SCRATCH_BYTES = 4 * 1024 * 1024

_scratch: bytearray | None = None
_zstd_context: "zstandard.ZstdDecompressor | None" = None


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Return ``data``, compressed with a level of the codec (None: its default).

    Raises ValueError for a level that the codec does not have; snappy has none.
    """
    if level is not None and level not in _LEVELS[codec]:
        raise ValueError(f"{codec.name.lower()} has no level {level}")
    return _COMPRESS[codec](data, level)


def decompress(codec: Compression, data: Buffer, max_size: int) -> bytes:
    """Return ``data``, decompressed.

    Raises :class:`CorruptBatch` if ``data`` is malformed, and
    :class:`~qbus.errors.OversizedBatch` if it holds more than ``max_size`` bytes. Large data is
    decompressed piece by piece, between which other threads run.
    """
    try:
        out = _DECOMPRESS[codec](data, max_size)
    except (zlib.error, RuntimeError) as error:
        raise CorruptBatch(f"{codec.name.lower()}: {error}") from error
    if len(out) <= max_size:
        return out
    del out  # the traceback would keep it as long as somebody keeps the error
    raise OversizedBatch(f"{codec.name.lower()}: records are larger than {max_size} bytes")


def peek(codec: Compression, data: Buffer, max_size: int) -> bytes | memoryview:
    """Return what :func:`decompress` returns, perhaps in memory that is good until the next call.

    New memory for large batches costs more than their decompression, and so does all that zstd
    needs for small ones. For one thread alone, and for looking only: bytes after the end of an lz4
    frame are passed over.

    Raises :class:`CorruptBatch` as :func:`decompress` does.
    """
    global _scratch  # noqa: PLW0603 - made at the first use
    if codec not in _INTO or (codec is Compression.LZ4 and len(data) <= _LZ4_SHORT):
        return decompress(codec, data, max_size)
    if _scratch is None:
        _scratch = bytearray(_SCRATCH_BYTES)
    size = _INTO[codec](data, _scratch)
    if size is None or size > max_size:
        return decompress(codec, data, max_size)
    return memoryview(_scratch)[:size]


def _gzip(data: Buffer, level: int | None) -> bytes:
    import gzip

    return gzip.compress(data, _GZIP_LEVEL if level is None else level, mtime=0)


def _gunzip(data: Buffer, max_size: int) -> bytes:
    member = zlib.decompressobj(_GZIP_WINDOW)
    rest: Buffer = data

    def read(size: int) -> bytes:
        nonlocal rest
        piece = member.decompress(rest, size)
        rest = member.unconsumed_tail
        return piece

    out = _read_all(read, _EXPANSION * len(data), max_size, "gzip")
    if not member.eof or member.unused_data:
        raise CorruptBatch("gzip: data is not one whole member")
    return out


def _snappy(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - there is none
    import cramjam

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(source: Buffer, max_size: int) -> bytes:
    data = bytes(source)
    blocks = _xerial_blocks(data) if data.startswith(_XERIAL_MAGIC) else [data]
    size = sum(map(_snappy_size, blocks))  # the blocks state it before they are decompressed
    if size > max_size:
        raise OversizedBatch(f"snappy: records of {size} bytes are larger than {max_size}")
    return b"".join(map(_unsnappy_block, blocks))


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks = []
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        if len(data) - pos < _BLOCK_LENGTH.size:
            raise CorruptBatch("snappy: a block's length is cut")
        (length,) = _BLOCK_LENGTH.unpack_from(data, pos)
        pos += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - pos:
            raise CorruptBatch(f"snappy: impossible block length {length}")
        blocks.append(data[pos : pos + length])
        pos += length
    return blocks


def _snappy_size(block: bytes) -> int:
    import cramjam

    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error
    return size


def _unsnappy_block(block: bytes) -> bytes:
    import cramjam

    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return compressed


def _unlz4(data: Buffer, max_size: int) -> bytes:
    import lz4.frame

    if len(data) <= _LZ4_SHORT and _LZ4_RATIO * len(data) <= max_size:
        whole, end = lz4.frame.decompress(data, return_bytes_read=True)
        if end != len(data):
            raise CorruptBatch("lz4: data is not one whole frame")
        return bytes(whole)
    frame = lz4.frame.LZ4FrameDecompressor()
    rest: Buffer = data

    def read(size: int) -> bytes:
        nonlocal rest
        given, rest = rest, b""
        return b"" if frame.eof else frame.decompress(given, max_length=size)

    out = _read_all(read, _EXPANSION * len(data), max_size, "lz4")
    if not frame.eof or frame.unused_data:
        raise CorruptBatch("lz4: data is not one whole frame")
    return out


def _lz4_into(data: Buffer, memory: bytearray) -> int | None:
    """How many bytes ``data`` has, decompressed into ``memory``; None: it is malformed, or more."""
    import cramjam

    try:
        size: int = cramjam.lz4.decompress_into(data, memory)
    except cramjam.DecompressionError:
        return None
    return size


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(_ZSTD_LEVEL if level is None else level).compress(data)


def _unzstd(data: Buffer, max_size: int) -> bytes:
    import zstandard

    # A truncated frame yields the bytes before the cut; the parser finds that records are missing.
    try:
        stated = zstandard.frame_content_size(data)  # -1: the frame does not state its size
        if stated > max_size:
            raise OversizedBatch(f"zstd: records of {stated} bytes are larger than {max_size}")
        first = stated + 1 if stated > 0 else _EXPANSION * len(data)
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return _read_all(reader.read, first, max_size, "zstd")
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"zstd: {error}") from error


def _zstd_into(data: Buffer, memory: bytearray) -> int | None:
    """As :func:`_lz4_into`."""
    import zstandard

    global _zstd_context  # noqa: PLW0603 - made at the first use
    if _zstd_context is None:
        _zstd_context = zstandard.ZstdDecompressor()
    try:
        with _zstd_context.stream_reader(data, read_across_frames=True) as reader:
            size: int = reader.readinto(memory)
    except zstandard.ZstdError:
        return None
    return size if size < len(memory) else None


def _read_all(read: Callable[[int], bytes], first: int, max_size: int, name: str) -> bytes:
    """Return all that ``read`` returns, which takes a size and returns less only at the end.

    ``first`` is how many are probably enough. Memory for more than there is would cost more than
    the decompression.
    """
    parts: list[bytes] = []
    left, step = max_size + 1, min(max(first, _LEAST_READ), _MOST_READ)
    while left:
        parts.append(read(min(step, left)))
        left -= len(parts[-1])
        if len(parts[-1]) < step:
            break
        step = min(step * _EXPANSION, _MOST_READ)
    if left <= 0:
        parts.clear()  # the traceback would keep them as long as somebody keeps the error
        raise OversizedBatch(f"{name}: records are larger than {max_size} bytes")
    return b"".join(parts)


def _same(data: Buffer, level: int | None) -> bytes:  # noqa: ARG001 - there is none
    return bytes(data)


def _same_bounded(data: Buffer, max_size: int) -> bytes:  # noqa: ARG001 - checked by the caller
    return bytes(data)


_LEVELS: Mapping[Compression, range] = {
    Compression.NONE: range(0),
    Compression.GZIP: range(1, 10),
    Compression.SNAPPY: range(0),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: range(-(1 << 17), 23),
}
"""The levels that Kafka's producers can choose (KIP-390, KIP-780)."""

_COMPRESS: Mapping[Compression, Callable[[Buffer, int | None], bytes]] = {
    Compression.NONE: _same,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
_DECOMPRESS: Mapping[Compression, Callable[[Buffer, int], bytes]] = {
    Compression.NONE: _same_bounded,
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
_INTO: Mapping[Compression, Callable[[Buffer, bytearray], int | None]] = {
    Compression.LZ4: _lz4_into,
    Compression.ZSTD: _zstd_into,
}
