"""Frames come out whole, however the bytes arrive."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.frames import FrameReader

LIMIT = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(reader: FrameReader, data: bytes, chunk: int) -> list[bytes]:
    """Deliver ``data`` as a socket would: at most ``chunk`` bytes, and what the buffer takes."""
    frames = []
    while data:
        buffer = reader.buffer()
        taken = min(chunk, len(buffer), len(data))
        assert taken > 0
        buffer[:taken] = data[:taken]
        frames += [bytes(frame) for frame in reader.received(taken)]
        data = data[taken:]
    return frames


@given(
    st.lists(st.sampled_from([1, 5, 100, 65_531, 65_532, 65_533, 200_000]), max_size=6),
    st.sampled_from([1000, 4096, 65_536, 1 << 20]),
)
def test_frames_of_any_size_in_chunks_of_any_size(sizes: list[int], chunk: int) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, payloads))
    assert feed(FrameReader(LIMIT), stream, chunk) == payloads


def test_byte_by_byte() -> None:
    assert feed(FrameReader(LIMIT), framed(b"one") + framed(b"2") + framed(b"three"), 1) == [
        b"one",
        b"2",
        b"three",
    ]


def test_a_frame_outlives_what_comes_after_it() -> None:
    reader = FrameReader(LIMIT)
    stream = framed(b"first")
    reader.buffer()[: len(stream)] = stream
    (first,) = reader.received(len(stream))
    feed(reader, framed(b"second"), 100)
    assert bytes(first) == b"first"


@pytest.mark.parametrize("length", [0, -1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_an_impossible_length_is_refused_before_it_is_allocated(length: int) -> None:
    with pytest.raises(WireError, match="frame"):
        feed(FrameReader(LIMIT), struct.pack(">i", length), 100)


def test_the_limit_itself_is_allowed() -> None:
    assert len(feed(FrameReader(LIMIT), framed(bytes(LIMIT)), 1 << 20)[0]) == LIMIT


def test_a_frame_larger_than_is_allocated_at_once() -> None:
    payload = bytes(range(256)) * 40_000
    reader = FrameReader(1 << 24)
    assert feed(reader, framed(payload) + framed(b"after"), 300_000) == [payload, b"after"]


def test_a_false_length_allocates_at_most_twice_the_bytes_received() -> None:
    reader = FrameReader(1 << 30)
    tracemalloc.start()
    try:
        assert feed(reader, struct.pack(">i", 1 << 30), 4) == []
        assert feed(reader, bytes(10_000_000), 1_000_000) == []
        assert tracemalloc.get_traced_memory()[0] < 21_000_000
    finally:
        tracemalloc.stop()


def receive(reader: FrameReader, payload: bytes) -> memoryview:
    """The frame itself, not a copy."""
    stream = framed(payload)
    while True:
        buffer = reader.buffer()
        taken = min(len(buffer), len(stream))
        buffer[:taken] = stream[:taken]
        stream = stream[taken:]
        for frame in reader.received(taken):
            assert not stream
            return frame


def test_the_buffer_of_a_frame_with_a_view_is_not_reused() -> None:
    reader = FrameReader(LIMIT)
    payloads = [bytes([number]) * (100_000 - number) for number in range(10)]
    frames = [receive(reader, payload)[10:] for payload in payloads]
    assert [bytes(frame) for frame in frames] == [payload[10:] for payload in payloads]


def test_the_buffer_of_a_frame_without_views_is_reused() -> None:
    reader = FrameReader(LIMIT)
    memories = []
    for number in range(20):
        frame = receive(reader, bytes([number]) * (100_000 - number))
        assert bytes(frame) == bytes([number]) * (100_000 - number)
        memories.append(frame.obj)
        part = frame[5:]
        del frame
        feed(reader, framed(b"small"), 100)
        del part
    assert len(set(map(id, memories))) <= 3


def test_what_is_to_come_of_a_large_frame() -> None:
    reader = FrameReader(LIMIT, trusted=100_000)
    assert reader.to_come() == 0
    stream = framed(bytes(300_000))
    for taken in (2, 1000, 60_000, 90_000, 140_000):
        (frames, stream) = (feed(reader, stream[:taken], taken), stream[taken:])
        assert frames == []
        assert reader.to_come() == (len(stream) if taken > 2 else 0)
    feed(reader, stream, len(stream))
    assert reader.to_come() == 0


def test_asking_what_is_to_come_leaves_the_buffer_alone() -> None:
    reader = FrameReader(LIMIT)
    feed(reader, framed(bytes(300_000))[:100_000], 50_000)
    given = reader.buffer()
    reader.to_come()
    given[:1] = b"x"  # not released
