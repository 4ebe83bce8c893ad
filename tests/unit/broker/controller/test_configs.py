"""Edits of a configuration: set, delete, append to and subtract from lists."""

import pytest

from qbus.broker.controller import Edit, EditKind, edit, replace, with_idle_time
from qbus.broker.controller.configs import check_dynamic
from qbus.config import BrokerConfig, TopicConfig
from qbus.config.settings import Settings, strings
from qbus.errors import ApiError, ConfigError, ErrorCode


class Basket(Settings):
    """A configuration with a list."""

    __slots__ = ()

    fruit_kinds = strings(("apple",), "Fruit.", choices=("apple", "pear", "plum"))


SET, DELETE, APPEND, SUBTRACT = EditKind


def test_edits_leave_the_other_keys_alone() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    edits = [Edit("retention.ms", SET, "9"), Edit("flush.ms", SET, "3")]
    assert edit(TopicConfig, current, edits) == {
        "retention.ms": "9",
        "segment.ms": "2",
        "flush.ms": "3",
    }
    assert current == {"retention.ms": "1", "segment.ms": "2"}


def test_deleting_sets_back_to_the_default() -> None:
    edits = [Edit("retention.ms", DELETE, None), Edit("segment.ms", DELETE, "ignored")]
    assert edit(TopicConfig, {"retention.ms": "1"}, edits) == {}


def test_an_unknown_key_can_be_deleted() -> None:
    assert edit(TopicConfig, {"old.key": "1"}, [Edit("old.key", DELETE, None)]) == {}


@pytest.mark.parametrize(
    ("current", "change", "after"),
    [
        ({}, Edit("fruit.kinds", APPEND, "pear"), "apple,pear"),
        ({"fruit.kinds": "plum"}, Edit("fruit.kinds", APPEND, "pear,apple"), "plum,pear,apple"),
        ({"fruit.kinds": "plum"}, Edit("fruit.kinds", APPEND, "plum"), "plum"),
        ({"fruit.kinds": "plum,pear"}, Edit("fruit.kinds", SUBTRACT, "plum"), "pear"),
        ({"fruit.kinds": "plum,pear"}, Edit("fruit.kinds", SUBTRACT, "apple"), "plum,pear"),
        ({}, Edit("fruit.kinds", SUBTRACT, "apple"), ""),
    ],
)
def test_lists_grow_and_shrink(current: dict[str, str], change: Edit, after: str) -> None:
    assert edit(Basket, current, [change]) == {"fruit.kinds": after}


@pytest.mark.parametrize(
    "change",
    [
        Edit("fruit.kinds", APPEND, "stone"),
        Edit("fruit.kinds", SET, "stone"),
        Edit("no.such.key", SET, "1"),
        Edit("no.such.key", APPEND, "1"),
    ],
)
def test_an_invalid_value_is_refused(change: Edit) -> None:
    with pytest.raises(ConfigError):
        edit(Basket, {}, [change])


def test_only_lists_are_appended_to() -> None:
    with pytest.raises(ConfigError, match="only lists are appended to"):
        edit(TopicConfig, {}, [Edit("retention.ms", APPEND, "1")])


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([Edit("flush.ms", SET, "1"), Edit("flush.ms", SET, "2")], "flush.ms is edited twice"),
        ([Edit("flush.ms", SET, "1"), Edit("flush.ms", DELETE, None)], "edited twice"),
        ([Edit("flush.ms", SET, None)], "a value is required"),
        ([Edit("cleanup.policy", APPEND, None)], "a value is required"),
        ([Edit("flush.ms", 4, "1")], "unknown operation 4"),
        ([Edit("flush.ms", -1, "1")], "unknown operation -1"),
    ],
)
def test_an_invalid_edit_is_an_invalid_request(edits: list[Edit], why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        edit(TopicConfig, {}, edits)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_replacing_forgets_what_is_not_named() -> None:
    assert replace(TopicConfig, [("flush.ms", "1")]) == {"flush.ms": "1"}
    assert replace(TopicConfig, []) == {}
    with pytest.raises(ApiError):
        replace(TopicConfig, [("flush.ms", "1"), ("flush.ms", "1")])
    with pytest.raises(ApiError):
        replace(TopicConfig, [("flush.ms", None)])


def test_a_static_key_cannot_be_changed() -> None:
    check_dynamic(BrokerConfig, ["message.max.bytes", "log.retention.ms"])
    with pytest.raises(ConfigError, match=r"node\.id takes effect only when the broker starts"):
        check_dynamic(BrokerConfig, ["message.max.bytes", "node.id"])


class TestIdleTimes:
    """A queue that ADDJOB has created stays once somebody configures it."""

    AUTOMATIC = {"qbus.queue.idle.ms": "300000", "qbus.delay.enable": "true"}  # noqa: RUF012

    def test_another_change_drops_it(self) -> None:
        edited = {**self.AUTOMATIC, "qbus.queue.delivery.limit": "3"}
        assert with_idle_time(self.AUTOMATIC, edited) == {
            "qbus.delay.enable": "true",
            "qbus.queue.delivery.limit": "3",
        }

    def test_a_change_of_itself_is_taken(self) -> None:
        edited = {**self.AUTOMATIC, "qbus.queue.idle.ms": "60000"}
        assert with_idle_time(self.AUTOMATIC, edited) == edited
        assert with_idle_time({}, {"qbus.queue.idle.ms": "1"}) == {"qbus.queue.idle.ms": "1"}

    def test_no_change_keeps_it(self) -> None:
        assert with_idle_time(self.AUTOMATIC, self.AUTOMATIC) == self.AUTOMATIC
