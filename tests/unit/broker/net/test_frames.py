"""Frames out of a byte stream."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.net.frames import RequestFrames
from qbus.errors import WireError

SCRATCH = 64


def reader(max_frame: int = 1_000_000, scratch: int = SCRATCH) -> RequestFrames:
    return RequestFrames(memoryview(bytearray(scratch)), max_frame)


def receive(frames: RequestFrames, data: bytes) -> list[bytes]:
    """Feed all of ``data`` as a socket would: as much as there is room for at a time."""
    whole: list[bytes] = []
    while data:
        target = frames.target()
        assert len(target), "a reader that must receive has room to receive into"
        taken = data[: len(target)]
        target[: len(taken)] = taken
        data = data[len(taken) :]
        frames.received(len(taken))
        whole += [bytes(frame) for frame in iter(frames.next, None)]
        frames.keep(frames.wanted())
    return whole


def framed(*bodies: bytes) -> bytes:
    return b"".join(pack(">i", len(body)) + body for body in bodies)


def test_several_frames_at_once() -> None:
    assert receive(reader(), framed(b"one", b"two", b"three")) == [b"one", b"two", b"three"]


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    cuts=st.lists(st.integers(1, 97), min_size=1, max_size=10),
)
def test_every_way_to_cut_the_stream_gives_the_same_frames(
    bodies: list[bytes], cuts: list[int]
) -> None:
    frames, data, whole = reader(), framed(*bodies), []
    position = turn = 0
    while position < len(data):
        size = cuts[turn % len(cuts)]
        whole += receive(frames, data[position : position + size])
        position += size
        turn += 1
    assert whole == bodies
    assert frames.held == 0
    assert frames.left == 0


def test_an_idle_stream_holds_no_memory() -> None:
    frames = reader()
    receive(frames, framed(b"x" * 500))
    assert frames.held == 0


def test_a_promise_of_a_huge_frame_costs_what_was_sent() -> None:
    frames = reader(max_frame=100 << 20, scratch=256 * 1024)
    receive(frames, pack(">i", 100 << 20) + b"x" * 1000)
    assert 1004 <= frames.held <= 4 * 1004


def test_a_large_frame_is_received_without_reading_beyond_it() -> None:
    body = bytes(range(256)) * 2000
    frames = reader()
    assert receive(frames, framed(body, b"next")) == [body, b"next"]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 1001])
def test_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"{length} bytes"):
        receive(reader(max_frame=1000), pack(">i", length) + b"rest")


def test_a_frame_of_just_the_limit_is_taken() -> None:
    assert receive(reader(max_frame=1000), framed(b"y" * 1000)) == [b"y" * 1000]


def test_frames_not_taken_yet_are_kept() -> None:
    frames = reader()
    data = framed(b"one", b"two", b"three")
    frames.target()[: len(data)] = data
    frames.received(len(data))
    first = bytes(frames.next() or b"")
    frames.keep(frames.wanted())
    rest = [bytes(frame) for frame in iter(frames.next, None)]
    assert [first, *rest] == [b"one", b"two", b"three"]
