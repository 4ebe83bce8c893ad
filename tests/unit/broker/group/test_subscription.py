"""Reading what consumers write into their opaque bytes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.group.subscription import is_subscribed, partitions_of, topics_of

from .scene import Scene

NAMES = st.text(max_size=20)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def subscription(topics: list[str], version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    body = b"".join(map(string, topics))
    return struct.pack(">hi", version, len(topics)) + body + rest


def assignment(partitions: dict[str, list[int]], rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    body = b"".join(
        string(topic) + struct.pack(f">i{len(given)}i", len(given), *given)
        for topic, given in partitions.items()
    )
    return struct.pack(">hi", 3, len(partitions)) + body + rest


@settings(max_examples=40)
@given(st.lists(NAMES), st.integers(0, 3), st.binary())
def test_subscriptions_of_every_version_tell_their_topics(
    topics: list[str], version: int, rest: bytes
) -> None:
    assert topics_of(subscription(topics, version, rest)) == frozenset(topics)


@settings(max_examples=40)
@given(st.dictionaries(NAMES, st.lists(st.integers(-(2**31), 2**31 - 1))), st.binary())
def test_assignments_tell_their_partitions(given: dict[str, list[int]], rest: bytes) -> None:
    expected = [(topic, partition) for topic, some in given.items() for partition in some]

    assert partitions_of(assignment(given, rest)) == expected


@given(st.binary())
def test_anything_else_is_unknown(data: bytes) -> None:
    topics_of(data)
    partitions_of(data)


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
def test_lies_about_lengths_are_unknown(data: bytes) -> None:
    assert topics_of(data) is None
    assert partitions_of(data) == []


def test_a_lie_about_partitions_is_unknown() -> None:
    assert partitions_of(struct.pack(">hi", 0, 1) + string("t") + struct.pack(">i", 2**30)) == []


class TestSubscribed:
    def group(self, metadata: bytes, protocol_type: str = "consumer") -> Scene:
        scene = Scene()
        scene.join(
            "",
            new_member_id="a",
            needs_known_id=False,
            protocol_type=protocol_type,
            protocols=(("range", metadata),),
        )
        scene.pass_time(3)
        return scene

    def test_are_the_topics_of_any_member(self) -> None:
        group = self.group(subscription(["t", "u"])).group

        assert is_subscribed(group, "u")
        assert not is_subscribed(group, "v")

    def test_may_be_all_when_it_cannot_be_read(self) -> None:
        assert is_subscribed(self.group(b"?").group, "anything")

    def test_are_none_of_an_empty_group(self) -> None:
        scene = self.group(subscription(["t"]))
        scene.leave("a")
        scene.pass_time(60)

        assert not is_subscribed(scene.group, "t")

    def test_are_none_of_groups_of_other_kinds(self) -> None:
        assert not is_subscribed(self.group(subscription(["t"]), "connect").group, "t")
