"""The codecs: round trips, the framings of other clients, damage, and bombs."""

import contextlib
import gzip
import os
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import ErrorCode, OversizedBatch
from qbus.records import Compression, CorruptBatch, build_batch, iter_records
from qbus.records.compression import compress, decompress, peek

CODECS = [codec for codec in Compression if codec]
LIMIT = 1 << 20


@given(st.sampled_from(Compression), st.binary(max_size=200), st.integers(1, 2000))
def test_round_trip(codec: Compression, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times), LIMIT) == data * times


@pytest.mark.parametrize("codec", CODECS)
def test_compression_makes_text_smaller(codec: Compression) -> None:
    assert len(compress(codec, b"a line of a log\n" * 1000)) < 2000


@pytest.mark.parametrize("codec", Compression)
def test_the_bound_is_exact(codec: Compression) -> None:
    data = bytes(range(256)) * 300
    assert decompress(codec, compress(codec, data), len(data)) == data
    with pytest.raises(CorruptBatch, match="larger"):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("size", [100, 100_000, 5_000_000])
def test_a_look_sees_the_same(codec: Compression, size: int) -> None:
    data = os.urandom(size // 2) + bytes(size // 2)
    compressed = compress(codec, data)
    assert peek(codec, compressed, 8 * LIMIT) == data
    with pytest.raises(CorruptBatch):
        peek(codec, compressed, size // 2)


@pytest.mark.parametrize("size", [0, 100, 4 << 20, (4 << 20) + 1])
def test_a_look_at_zstd_as_java_writes_it(size: int) -> None:
    data = os.urandom(size // 2) + bytes(size - size // 2)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert peek(Compression.ZSTD, frame, 8 * LIMIT) == data
    assert peek(Compression.ZSTD, frame + frame, 16 * LIMIT) == data + data
    with pytest.raises(CorruptBatch):
        peek(Compression.ZSTD, b"no frame" + frame, 8 * LIMIT)
    assert peek(Compression.ZSTD, frame, 8 * LIMIT) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_look_finds_the_same_damage(codec: Compression) -> None:
    data = compress(codec, os.urandom(100_000))
    with contextlib.suppress(CorruptBatch):  # a cut frame of zstd yields what there is
        assert len(peek(codec, data[:-2000], LIMIT)) < 100_000


def test_raw_snappy_as_librdkafka_writes_it() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 1000))
    assert decompress(Compression.SNAPPY, raw, LIMIT) == b"hello" * 1000


def test_snappy_is_written_with_the_framing_of_java() -> None:
    framed = compress(Compression.SNAPPY, bytes(100_000))
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01")
    first = int.from_bytes(framed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first])) == bytes(32 * 1024)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 20_000, 65_536, 300_000, 3_000_000])
@pytest.mark.parametrize("part", [b"x", os.urandom(700), os.urandom(100_000)], ids=len)
def test_any_size_and_ratio(codec: Compression, size: int, part: bytes) -> None:
    data = (part * (size // len(part) + 1))[:size]
    compressed = compress(codec, data)
    assert decompress(codec, compressed, size) == data
    assert decompress(codec, compressed, 10 * size + 1) == data
    if size and codec:
        with pytest.raises(CorruptBatch, match="larger than"):
            decompress(codec, compressed, size - 1)


def test_lz4_blocks_are_independent() -> None:
    frame = lz4.frame.get_frame_info(compress(Compression.LZ4, bytes(200_000)))
    assert not frame["block_linked"]


@pytest.mark.parametrize(
    "data",
    [
        lz4.frame.compress(b"x" * 100_000, block_linked=True, store_size=True),
        lz4.frame.compress(b"x" * 100_000, content_checksum=True, block_checksum=True),
    ],
)
def test_other_lz4_frames_are_read(data: bytes) -> None:
    assert decompress(Compression.LZ4, data, LIMIT) == b"x" * 100_000


def test_zstd_without_a_content_size_is_read() -> None:
    data = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100_000)
    assert decompress(Compression.ZSTD, data, LIMIT) == b"x" * 100_000


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_a_corrupt_batch(codec: Compression) -> None:
    records = [(None, b"value %d" % number, (), 0) for number in range(200)]
    batch = bytes(build_batch(records, compression=codec))
    for cut in range(61, len(batch)):
        with pytest.raises(CorruptBatch):
            list(iter_records(_with_length(batch[:cut])))
    for at in range(61, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0xFF
        with contextlib.suppress(CorruptBatch):
            list(iter_records(damaged))  # without the CRC some damage makes other valid records


@pytest.mark.parametrize("codec", CODECS)
@given(garbage=st.binary(max_size=300))
def test_garbage_is_a_corrupt_batch(codec: Compression, garbage: bytes) -> None:
    for data in (garbage, compress(codec, b"hello" * 20)[:12] + garbage):
        with contextlib.suppress(CorruptBatch):
            decompress(codec, data, LIMIT)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_bytes_after_the_end_are_refused(codec: Compression) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, b"hello") + b"more", LIMIT)


def test_many_empty_gzip_members_are_refused_at_once() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Compression.GZIP, gzip.compress(b"") * 50_000, LIMIT)


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_a_lying_snappy_block_length_is_refused(length: int) -> None:
    framed = compress(Compression.SNAPPY, b"hello")
    lying = framed[:16] + (length & 0xFFFFFFFF).to_bytes(4, "big") + framed[20:]
    with pytest.raises(CorruptBatch, match="length"):
        decompress(Compression.SNAPPY, lying, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_with_bounded_memory(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="larger"):
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(bomb) + 8 * LIMIT


MANY = bytes(16 * LIMIT)


def _linked() -> bytes:
    return bytes(lz4.frame.compress(MANY, block_linked=True, store_size=False))


def _lying_lz4() -> bytes:
    """A frame that states one byte of content, with a right header checksum, and holds many."""
    honest = lz4.frame.compress(b"x", store_size=True)
    head = lz4.frame.get_frame_info(honest)
    assert head["content_size"] == 1
    whole = lz4.frame.compress(MANY, store_size=False, block_linked=False, block_size=7)
    return bytes(honest[:15] + whole[7:])


def _many_frames() -> bytes:
    return zstandard.ZstdCompressor().compress(bytes(LIMIT // 4)) * 64


def _wide_window() -> bytes:
    """A frame that wants a window of 128 MiB, as ``--ultra --long`` writes it."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(MANY)


def _too_wide_window() -> bytes:
    frame = bytearray(_wide_window())
    frame[5] = 31 - 10 << 3  # 2 GiB
    return bytes(frame)


def _huge_content_size() -> bytes:
    frame = zstandard.ZstdCompressor().compress(MANY)
    assert frame[4] >> 6 == 2
    assert not frame[4] & 3
    return frame[:5] + b"\xff\xff\xff\xff" + frame[9:]


def _xerial_blocks() -> bytes:
    """A frame of more blocks than there may be bytes, each of them small."""
    block = bytes(cramjam.snappy.compress_raw(bytes(65_536)))
    framed = compress(Compression.SNAPPY, b"")
    return framed + (len(block).to_bytes(4, "big") + block) * 256


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (Compression.LZ4, _linked),
        (Compression.LZ4, _lying_lz4),
        (Compression.ZSTD, _many_frames),
        (Compression.ZSTD, _wide_window),
        (Compression.ZSTD, _too_wide_window),
        (Compression.ZSTD, _huge_content_size),
        (Compression.SNAPPY, _xerial_blocks),
    ],
    ids=lambda part: part.__name__ if callable(part) else "",
)
def test_no_form_of_a_stream_passes_the_bound(
    codec: Compression, make: Callable[[], bytes]
) -> None:
    stream = make()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, stream, LIMIT)
        with pytest.raises(CorruptBatch):
            peek(codec, stream, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * LIMIT + len(stream)  # and the memory for looks


@pytest.mark.parametrize("codec", Compression)
def test_what_is_too_large_is_not_to_be_sent_again(codec: Compression) -> None:
    with pytest.raises(OversizedBatch) as caught:
        decompress(codec, compress(codec, bytes(LIMIT + 1)), LIMIT)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not caught.value.retriable


def test_a_snappy_block_that_claims_gigabytes_allocates_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 10
    with pytest.raises(CorruptBatch, match="larger"):
        decompress(Compression.SNAPPY, claim, LIMIT)


def _with_length(batch: bytes) -> bytes:
    return batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]
