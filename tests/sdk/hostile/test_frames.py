"""Frames that are not what they say they are, in answer to everything that clients ask."""

import asyncio
import struct

from tests.sdk.hostile.victims import DONE, attack_everywhere, mishaps


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def wrong_correlation(frame: bytes) -> bytes:
    return frame[:4] + b"\x7f\xff\xff\xff" + frame[8:]


def of_the_request_before(frame: bytes) -> bytes:
    return frame[:4] + struct.pack(">i", int.from_bytes(frame[4:8]) - 1) + frame[8:]


def cut_short(frame: bytes) -> bytes:
    return framed(frame[4:-1])


def header_alone(frame: bytes) -> bytes:
    return framed(frame[4:8])


def less_than_a_header(frame: bytes) -> bytes:
    return framed(frame[4:7])


def empty(frame: bytes) -> bytes:
    return framed(b"")


def followed_by_more(frame: bytes) -> bytes:
    return framed(frame[4:] + b"more")


def of_negative_length(frame: bytes) -> bytes:
    return struct.pack(">i", -2) + frame[4:]


def of_two_gigabytes(frame: bytes) -> bytes:
    return struct.pack(">i", 2**31 - 1) + frame[4:]


def that_never_ends(frame: bytes) -> bytes:
    return struct.pack(">i", 90 * 1024 * 1024) + frame[4:]


def all_ones(frame: bytes) -> bytes:
    return framed(frame[4:8] + b"\xff" * (len(frame) - 8))


def all_zeros(frame: bytes) -> bytes:
    return framed(frame[4:8] + bytes(len(frame) - 8))


def of_http(frame: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


REFUSED = (
    wrong_correlation,
    of_the_request_before,
    cut_short,
    header_alone,
    less_than_a_header,
    empty,
    followed_by_more,
    of_negative_length,
    of_two_gigabytes,
    that_never_ends,
    all_ones,
    of_http,
)


async def test_an_honest_broker_serves_everybody() -> None:
    assert set((await attack_everywhere(bytes)).values()) == {DONE}


async def test_malformed_frames_are_refused() -> None:
    fared: dict[str, str] = {}
    for mangle, ends in zip(
        REFUSED, await asyncio.gather(*map(attack_everywhere, REFUSED)), strict=True
    ):
        fared |= {f"{who}, {mangle.__name__}": end for who, end in ends.items()}
    assert mishaps(fared) == {}
    assert [who for who, end in fared.items() if end == DONE] == []


async def test_two_answers_to_one_request() -> None:
    """The first is the answer; the connection is not trusted with another request."""
    assert mishaps(await attack_everywhere(lambda frame: frame + frame)) == {}


async def test_answers_of_zeros_do_no_harm() -> None:
    """Such as no brokers, no partitions or no error: nobody falls over that."""
    assert mishaps(await attack_everywhere(all_zeros)) == {}
