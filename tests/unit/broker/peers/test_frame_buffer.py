"""Frames are split correctly wherever the stream is cut, and memory is bounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.peers.frame_buffer import FrameBuffer
from qbus.errors import WireError


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big", signed=True) + frame for frame in frames)


def feed(buffer: FrameBuffer, stream: bytes, pieces: list[int]) -> list[bytes]:
    """Feed ``stream`` in ``pieces``, then as much as there is room for."""
    found = []
    while stream:
        target = buffer.target()
        assert len(target) > 0
        count = min(pieces.pop(0) if pieces else len(stream), len(target), len(stream))
        target[:count] = stream[:count]
        stream = stream[count:]
        buffer.received(count)
        found += [bytes(frame) for frame in buffer.frames()]
    return found


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    st.lists(st.integers(1, 400), max_size=40),
)
def test_frames_are_those_that_were_sent(frames: list[bytes], pieces: list[int]) -> None:
    assert feed(FrameBuffer(1000), framed(*frames), pieces) == frames


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 300_000), min_size=1, max_size=5),
    st.lists(st.integers(1, 100_000), max_size=12),
)
def test_large_frames(sizes: list[int], pieces: list[int]) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    assert feed(FrameBuffer(1 << 20), framed(*frames), pieces) == frames


@pytest.mark.parametrize("size", [0, -1, 1001, 2**31 - 1])
def test_an_invalid_length_is_refused(size: int) -> None:
    buffer = FrameBuffer(1000)
    with pytest.raises(WireError, match="a frame of"):
        feed(buffer, size.to_bytes(4, "big", signed=True) + b"....", [])


def test_memory_grows_with_the_bytes_received_not_with_the_length() -> None:
    buffer = FrameBuffer(100 << 20)
    feed(buffer, (100 << 20).to_bytes(4, "big") + b"x" * 1000, [])
    buffer.target()
    assert buffer.capacity <= 1 << 17


def test_a_buffer_is_reused_unless_it_is_huge() -> None:
    buffer = FrameBuffer(100 << 20)
    feed(buffer, framed(b"x" * (1 << 20)), [])
    before = buffer.capacity
    feed(buffer, framed(b"y" * (1 << 20)), [])
    buffer.target()
    assert buffer.capacity == before >= 1 << 20
    feed(buffer, framed(b"z" * (20 << 20)), [])
    buffer.target()
    assert buffer.capacity < 1 << 20
