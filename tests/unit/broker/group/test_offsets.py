"""When offsets expire."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.group.group import Group
from qbus.broker.group.offsets import Offset, Retention
from qbus.broker.group.requests import GroupProtocol
from qbus.broker.group.state import GroupState

from .scene import Scene

HOUR = 3_600_000
WEEK = Retention(7 * 24 * HOUR)
SUBSCRIBED_TO_T = (GroupProtocol("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)


def expired(group: Group, since_ms: int = 0, now_ms: int = 10 * 24 * HOUR) -> set[str]:
    offsets = {
        "t": {0: Offset(1, committed_at=0)},
        "old": {0: Offset(1, committed_at=0)},
        "new": {0: Offset(1, committed_at=5 * 24 * HOUR)},
        "own": {0: Offset(1, committed_at=0, expires_at=11 * 24 * HOUR)},
        "short": {0: Offset(1, committed_at=9 * 24 * HOUR, expires_at=9 * 24 * HOUR + 1)},
    }
    return {topic for topic, _ in WEEK.expired(group, offsets, since_ms, now_ms)}


def stable(**changes: object) -> Group:
    scene = Scene()
    scene.join("", new_member_id="a", needs_known_id=False, **changes)
    scene.pass_time(3)
    kind = changes.get("protocol_type", "consumer")
    scene.sync("a", protocol_type=kind)
    assert scene.group.state is GroupState.STABLE
    return scene.group


def test_without_members_ever_each_counts_from_its_commit() -> None:
    assert expired(Group("g"), since_ms=9 * 24 * HOUR) == {"t", "old", "short"}


def test_emptied_all_count_from_then() -> None:
    group = Group("g")
    group.protocol_type = "consumer"

    assert expired(group, since_ms=3 * 24 * HOUR) == {"t", "old", "new", "short"}
    assert expired(group, since_ms=3 * 24 * HOUR + 1) == {"short"}


def test_stable_those_that_are_not_subscribed_count_from_their_commit() -> None:
    assert expired(stable(protocols=SUBSCRIBED_TO_T)) == {"old", "short"}


def test_stable_nothing_expires_when_subscriptions_cannot_be_read() -> None:
    assert expired(stable()) == set()


def test_stable_nothing_expires_of_groups_that_are_no_consumers() -> None:
    assert expired(stable(protocol_type="connect")) == set()


def test_in_a_rebalance_nothing_expires() -> None:
    group = stable(protocols=SUBSCRIBED_TO_T)
    group.state = GroupState.PREPARING

    assert expired(group) == set()


@given(st.integers(1, 10**12), st.integers(0, 2**41))
def test_times_are_rounded_up_by_at_most_a_hundredth_or_an_hour(
    retention_ms: int, time_ms: int
) -> None:
    rounded = Retention(retention_ms).round(time_ms)

    assert 0 <= rounded - time_ms < max(1, min(retention_ms / 100, HOUR) + 1)
    assert Retention(retention_ms).round(rounded) == rounded


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def subscription(topics: list[str], version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    body = b"".join(map(string, topics))
    return struct.pack(">hi", version, len(topics)) + body + rest


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

        assert group.is_subscribed("u")
        assert not group.is_subscribed("v")

    def test_may_be_all_when_it_cannot_be_read(self) -> None:
        assert self.group(b"?").group.is_subscribed("anything")

    def test_are_none_of_an_empty_group(self) -> None:
        scene = self.group(subscription(["t"]))
        scene.leave("a")
        scene.pass_time(60)

        assert not scene.group.is_subscribed("t")

    def test_are_none_of_groups_of_other_kinds(self) -> None:
        assert not self.group(subscription(["t"]), "connect").group.is_subscribed("t")
