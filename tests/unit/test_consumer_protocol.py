"""Subscriptions and assignments: Kafka's bytes, and nobody else's."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    decode_topics,
    encode_assignment,
    encode_subscription,
)
from qbus.errors import WireError
from qbus.names import TopicPartition

names = st.text(min_size=1, max_size=10)
partitions = st.lists(
    st.tuples(names, st.integers(0, 1000)).map(lambda pair: TopicPartition(*pair)),
    max_size=10,
    unique=True,
).map(lambda found: tuple(sorted(found)))


def test_golden_subscription() -> None:
    owned = (TopicPartition("a", 3),)
    data = encode_subscription(Subscription(("b", "a"), owned, b"\xfe", 7, "r"))
    assert (
        data.hex()
        == (
            "0003"  # version
            "00000002" + "000161" + "000162"  # topics
            "00000001" + "fe"  # user data
            "00000001" + "000161" + "00000001" + "00000003"  # owned
            "00000007"  # generation
            "000172"  # rack
        )
    )


def test_golden_assignment() -> None:
    data = encode_assignment([TopicPartition("a", 3), TopicPartition("a", 1)])
    assert data.hex() == "000300000001000161000000020000000100000003ffffffff"


@given(
    st.lists(names, max_size=5, unique=True).map(sorted).map(tuple),
    partitions,
    st.none() | st.binary(max_size=9),
    st.integers(-1, 2**31 - 1),
    st.none() | names,
)
def test_subscription_round_trip(
    topics: tuple[str, ...],
    owned: tuple[TopicPartition, ...],
    user_data: bytes | None,
    generation: int,
    rack: str | None,
) -> None:
    subscription = Subscription(topics, owned, user_data, generation, rack)
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(partitions)
def test_assignment_round_trip(assigned: tuple[TopicPartition, ...]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == assigned


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == ()


TOPICS_AND_DATA = "00000001000161" + "000000020102"
OWNED = "00000001" + "00016100000001" + "00000005"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("0000" + TOPICS_AND_DATA, Subscription(("a",), (), b"\1\2")),
        (
            "0001" + TOPICS_AND_DATA + OWNED,
            Subscription(("a",), (TopicPartition("a", 5),), b"\1\2"),
        ),
        (
            "0002" + TOPICS_AND_DATA + OWNED + "00000007",
            Subscription(("a",), (TopicPartition("a", 5),), b"\1\2", 7),
        ),
        (
            "0003" + TOPICS_AND_DATA + OWNED + "00000007" + "ffff",
            Subscription(("a",), (TopicPartition("a", 5),), b"\1\2", 7),
        ),
    ],
)
def test_every_version_is_read(data: str, said: Subscription) -> None:
    assert decode_subscription(bytes.fromhex(data)) == said


def test_later_versions_only_add() -> None:
    later = struct.pack(">h", 9) + encode_subscription(Subscription(("a",)))[2:] + b"more"
    assert decode_subscription(later) == Subscription(("a",))
    later = struct.pack(">h", 9) + encode_assignment([TopicPartition("a", 0)])[2:] + b"more"
    assert decode_assignment(later) == (TopicPartition("a", 0),)


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    for decode in (decode_subscription, decode_topics, decode_assignment):
        with contextlib.suppress(WireError):
            decode(data)


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_cut_assignment_is_refused(cut: int) -> None:
    with pytest.raises(WireError):
        decode_assignment(encode_assignment([TopicPartition("abc", 3)])[:cut])


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_a_lying_count_is_refused(count: int) -> None:
    with pytest.raises(WireError, match="array"):
        decode_assignment(struct.pack(">hi", 1, count))


@given(st.lists(names, unique=True), st.integers(0, 3), st.binary())
def test_topics_are_read_whatever_follows_them(
    topics: list[str], version: int, rest: bytes
) -> None:
    encoded = b"".join(struct.pack(">h", len(one.encode())) + one.encode() for one in topics)
    data = struct.pack(">hi", version, len(topics)) + encoded + rest
    assert decode_topics(data) == frozenset(topics)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 5) + b"abcd",
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_false_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_topics(data)
