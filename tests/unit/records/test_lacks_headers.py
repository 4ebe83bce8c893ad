"""Whether compressed records have a header with some name: "no" is never wrong."""

import random
import struct
from collections.abc import Callable
from itertools import product

import cramjam
import lz4.block
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import Compression, CorruptBatch, build_batch, read_header
from qbus.records.compression import compress, decompress
from qbus.records.header import HEADER_SIZE, LENGTH_PREFIX, write_header

lacks_headers = pytest.importorskip("qbus.records._header").lacks_headers  # there is no twin

NAME = b"qbus-"
LIMIT = 64 << 20
WINDOW = 1 << 16
LZ4_END = bytes(4)
LZ4_START = b"\x04\x22\x4d\x18\x60\x40\x82"  # independent blocks of 64 KiB


def lacks(codec: Compression, compressed: bytes, limit: int = LIMIT) -> bool:
    """What is said of a batch with these compressed records."""
    made = bytearray(build_batch([(None, b"", (), 0)]))[:HEADER_SIZE] + compressed
    length = len(made) - LENGTH_PREFIX
    write_header(made, read_header(made)._replace(batch_length=length, attributes=codec))
    return bool(lacks_headers(made, NAME, limit))


def independent(data: bytes) -> bytes:
    return compress(Compression.LZ4, data)


def linked(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=True, store_size=True))


def large_blocks(data: bytes) -> bytes:
    """As Go's clients write it."""
    return bytes(
        lz4.frame.compress(
            data,
            block_size=lz4.frame.BLOCKSIZE_MAX4MB,
            block_linked=False,
            content_checksum=True,
            store_size=False,
        )
    )


def thorough(data: bytes) -> bytes:
    return bytes(
        lz4.frame.compress(data, compression_level=9, block_checksum=True, content_checksum=True)
    )


def framed_snappy(data: bytes) -> bytes:
    return compress(Compression.SNAPPY, data)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


Way = tuple[Compression, Callable[[bytes], bytes]]
WAYS: list[Way] = [
    *((Compression.LZ4, way) for way in (independent, linked, large_blocks, thorough)),
    *((Compression.SNAPPY, way) for way in (framed_snappy, raw_snappy)),
]
ways = pytest.mark.parametrize(("codec", "way"), WAYS, ids=lambda it: getattr(it, "__name__", None))

PIECES = st.sampled_from([NAME, b"q", b"qb", b"qbu", b"qbus", b"-", b"s-", b"us-", b"x" * 9, b"ab"])
DATA = st.lists(
    st.tuples(PIECES | st.binary(max_size=8), st.integers(1, 60)).map(lambda it: it[0] * it[1]),
    max_size=40,
).map(b"".join)


@ways
@given(data=DATA)
def test_a_name_is_found_wherever_it_is(
    codec: Compression, way: Callable[[bytes], bytes], data: bytes
) -> None:
    assert lacks(codec, way(data)) is (NAME not in data)


def text(size: int, seed: int) -> bytes:
    """Lines like those of a log, of many words, none of which is the name."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 9)).hex().encode() for _ in range(2000)]
    words += [b"request", b"query", b"status", b"qb", b"bus-", b"sequence", rng.randbytes(300)]
    return b" ".join(rng.choices(words, k=size // 6))[:size].replace(NAME, b"")


@ways
@pytest.mark.parametrize("size", [10_000, 200_000, 1_500_000])
def test_large_ones(codec: Compression, way: Callable[[bytes], bytes], size: int) -> None:
    data = bytearray(text(size, size))
    assert lacks(codec, way(bytes(data)))
    rng = random.Random(size)
    for at in (0, len(data) - len(NAME), *(rng.randrange(len(data) - 9) for _ in range(2))):
        whole = data[:at] + NAME + data[at + len(NAME) :]
        assert not lacks(codec, way(bytes(whole)))


@ways
@pytest.mark.parametrize("filling", [b"x", None], ids=["matches", "stored"])
@pytest.mark.parametrize("border", [WINDOW // 2, WINDOW, 4 * WINDOW])
def test_a_name_across_a_border(
    codec: Compression, way: Callable[[bytes], bytes], border: int, filling: bytes | None
) -> None:
    size = 5 * WINDOW
    rest = filling * size if filling else random.Random(1).randbytes(size).replace(b"q", b"p")
    assert lacks(codec, way(rest))
    for at in range(border - len(NAME), border + 1):
        assert not lacks(codec, way(rest[:at] + NAME + rest[at:])), at


# Blocks that no compressor makes: any literals, and matches of any offset and length.

Sequence = tuple[bytes, int, int]


def length_of(size: int) -> bytes:
    return b"" if size < 15 else b"\xff" * ((size - 15) // 255) + bytes([(size - 15) % 255])


def lz4_block(sequences: list[Sequence], last: bytes) -> tuple[bytes, bytes]:
    """A block, and what it decompresses to; offsets are taken as far as there is something."""
    block, out = bytearray(), bytearray()
    for given_literals, offset, size in sequences:
        literals = given_literals if out else given_literals + b"?"
        out += literals
        back = 1 + offset % min(len(out), WINDOW - 1)
        block.append(min(len(literals), 15) << 4 | min(size - 4, 15))
        block += length_of(len(literals)) + literals + struct.pack("<H", back)
        block += length_of(size - 4)
        turns = -(-size // back)
        out += (bytes(out[-back:]) * turns)[:size]
    block.append(min(len(last), 15) << 4)
    return bytes(block + length_of(len(last)) + last), bytes(out + last)


def lz4_frame(*blocks: bytes) -> bytes:
    return LZ4_START + b"".join(struct.pack("<I", len(one)) + one for one in blocks) + LZ4_END


FRAGMENTS = st.lists(
    st.sampled_from(
        [b"", b"q", b"b", b"u", b"s", b"-", b"qb", b"us-", b"bus", b"y" * 17, b"0" * 40]
    ),
    max_size=3,
).map(b"".join)
SIZES = st.integers(4, 40) | st.sampled_from([127, 128, 129, 300, 5000])
SEQUENCES = st.lists(st.tuples(FRAGMENTS, st.integers(0, 30) | st.integers(0, 999), SIZES))


@given(sequences=SEQUENCES, last=FRAGMENTS)
def test_matches_of_any_kind(sequences: list[Sequence], last: bytes) -> None:
    block, out = lz4_block(sequences, last + b"." * 12)
    assert lz4.block.decompress(block, uncompressed_size=len(out)) == out
    if len(out) <= WINDOW:
        assert lacks(Compression.LZ4, lz4_frame(block)) is (NAME not in out)


@pytest.mark.parametrize(
    ("sequences", "last"),
    [
        ([(b"xxxxq", 0, 4), (b"bus-", 0, 4)], b""),
        ([(b"bus-q", 0, 4), (b"", 7, 4)], b"-"),
        ([(b"us-..", 0, 4), (b"qb", 10, 4)], b""),
        ([(b"..qb", 1, 4), (b"us-", 2, 4)], b""),
        ([(b"us-+..", 0, 4), (b"..qb", 3, 4), (b"", 17, 4)], b""),
    ],
)
def test_a_name_made_of_matches(sequences: list[Sequence], last: bytes) -> None:
    block, out = lz4_block(sequences, last + b"." * 12)
    assert lacks(Compression.LZ4, lz4_frame(block)) is (NAME not in out)


@given(data=DATA, changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
@ways
def test_what_is_damaged_has_no_name_that_was_not_found(
    codec: Compression,
    way: Callable[[bytes], bytes],
    data: bytes,
    changes: list[tuple[int, int]],
) -> None:
    damaged = bytearray(way(data))
    for at, value in changes:
        damaged[at % len(damaged)] = value
    if lacks(codec, bytes(damaged)):
        found = read(codec, bytes(damaged))
        assert NAME not in found
        assert not found.startswith(b"error") or b"heck" in found, "only checksums are not computed"


def read(codec: Compression, compressed: bytes) -> bytes:
    """What the library reads, or its error."""
    try:
        return decompress(codec, compressed, LIMIT)
    except CorruptBatch as error:
        return f"error: {error}".encode()


@ways
@given(data=DATA, cut=st.integers(1))
def test_what_is_cut_or_goes_on_may_have_a_name(
    codec: Compression, way: Callable[[bytes], bytes], data: bytes, cut: int
) -> None:
    whole = way(data)
    assert not lacks(codec, whole + b"\0")
    if way is not framed_snappy:  # which may end after each of its blocks
        assert not lacks(codec, whole[: -(1 + cut % len(whole))])


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
@given(garbage=st.binary(max_size=300))
def test_garbage(codec: Compression, garbage: bytes) -> None:
    for data in (garbage, LZ4_START + garbage, compress(codec, b"hello" * 20)[:12] + garbage):
        if lacks(codec, data):
            assert NAME not in decompress(codec, data, LIMIT)


HELLO, _ = lz4_block([(b"hello", 4, 20)], b"hello")
BEYOND = b"\x14h\x02\x00" + b"\x50hello"


@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(HELLO)[:4] + b"\x60\x40\x83" + lz4_frame(HELLO)[7:],
        b"\x02\x21\x4c\x18" + lz4_frame(HELLO)[4:],
        b"\x50\x2a\x4d\x18\x02\0\0\0ab" + lz4_frame(HELLO),
        lz4_frame(HELLO) + lz4_frame(HELLO),
        lz4_frame(HELLO, b""),
        lz4_frame(BEYOND),
        lz4_frame(b"\x14h\0\0" + b"\x50hello"),
        lz4_frame(b"\x14h\x01\x00"),
        lz4_frame(b"\x14h\x01"),
        lz4_frame(b"\xf0" + b"\xff" * 9),
        lz4_frame(bytes([0x1F]) + b"h\x01\0" + b"\xff" * 300 + b"\0\x50hello"),
        linked(b"hello" * 99)[:6] + b"\x07" + linked(b"hello" * 99)[7:],
    ],
    ids=[
        "header's checksum",
        "an old format",
        "a frame to be skipped",
        "two frames",
        "an empty block",
        "a match from before the start",
        "a match of itself",
        "no end of a block",
        "half an offset",
        "half a length",
        "a block of more than 64 KiB",
        "another size than it says",
    ],
)
def test_what_is_left_to_the_library(frame: bytes) -> None:
    assert lacks(Compression.LZ4, lz4_frame(HELLO))
    assert not lacks(Compression.LZ4, frame)


def test_a_block_that_refers_to_one_before_only_where_they_are_linked() -> None:
    data = text(40_000, 2) * 4
    frame = bytearray(lz4.frame.compress(data, block_linked=True, store_size=False))
    assert lacks(Compression.LZ4, bytes(frame))
    frame[:7] = LZ4_START
    assert not lacks(Compression.LZ4, bytes(frame))


@ways
def test_the_bound_is_exact(codec: Compression, way: Callable[[bytes], bytes]) -> None:
    data = text(300_000, 3)
    assert lacks(codec, way(data), len(data))
    assert not lacks(codec, way(data), len(data) - 1)


@ways
def test_a_bomb_is_left_to_the_library(codec: Compression, way: Callable[[bytes], bytes]) -> None:
    bomb = way(bytes(4 << 20))
    assert lacks(codec, bomb)
    assert not lacks(codec, bomb, 1 << 20)


@ways
def test_what_looks_like_the_name_again_and_again_is_left_to_the_library(
    codec: Compression, way: Callable[[bytes], bytes]
) -> None:
    data = bytes(random.Random(4).choices(b"qb", k=100_000))
    assert not lacks(codec, way(data))


def test_repetitions_longer_than_the_window() -> None:
    for part, size in product(
        [b"x", b"abc", b"bus-q", b"0" * 30_000 + b"us-qb"], [70_000, 400_000]
    ):
        data = (b"--" + part * (size // len(part) + 1))[:size]
        for way in (linked, large_blocks):
            assert lacks(Compression.LZ4, way(data)) is (NAME not in data)
            assert not lacks(Compression.LZ4, way(data + b"qbus-"))


@pytest.mark.parametrize(
    ("attributes", "known"), [(0, True), (0x10, True), (0x08, False), (0x20, False), (5, False)]
)
def test_which_batches_are_known(attributes: int, known: bool) -> None:
    made = build_batch([(b"k", b"v", [("name", b"qbus-")], 0)])
    write_header(made, read_header(made)._replace(attributes=attributes))
    assert lacks_headers(made, NAME, LIMIT) is known
    assert not lacks_headers(made[:-1], NAME, LIMIT)
    assert not lacks_headers(made + b"\0", NAME, LIMIT)
