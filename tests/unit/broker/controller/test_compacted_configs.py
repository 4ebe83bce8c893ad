"""The key that remembers that a topic was compacted: set when that ends, never removed."""

import pytest

from qbus.broker.controller.configs import CLEANUP_POLICY, COMPACTED, with_compacted
from qbus.errors import ConfigError

COMPACT = {CLEANUP_POLICY: "compact", "retention.ms": "5"}


@pytest.mark.parametrize("current", [{}, COMPACT, {CLEANUP_POLICY: "compact,delete"}])
def test_nothing_is_remembered_while_a_topic_is_compacted(current: dict[str, str]) -> None:
    edited = {**current, CLEANUP_POLICY: "delete,compact"}
    assert with_compacted(current, edited) == edited


@pytest.mark.parametrize("edited", [{}, {CLEANUP_POLICY: "delete"}, {"flush.ms": "1"}])
def test_the_end_of_compaction_is_remembered(edited: dict[str, str]) -> None:
    assert with_compacted(COMPACT, edited) == {**edited, COMPACTED: "true"}


@pytest.mark.parametrize("edited", [{}, {COMPACTED: "true"}, COMPACT])
def test_it_is_remembered_for_good(edited: dict[str, str]) -> None:
    assert with_compacted({COMPACTED: "true"}, edited)[COMPACTED] == "true"


@pytest.mark.parametrize("value", ["true", "false"])
def test_only_the_broker_says_it(value: str) -> None:
    with pytest.raises(ConfigError, match="only the broker sets it"):
        with_compacted({}, {COMPACTED: value})


def test_it_cannot_be_denied() -> None:
    with pytest.raises(ConfigError, match="only the broker sets it"):
        with_compacted({COMPACTED: "true"}, {COMPACTED: "false"})
