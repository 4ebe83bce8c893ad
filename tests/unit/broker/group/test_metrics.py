"""How far groups are behind, as Prometheus reads it."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from qbus.broker.group import metrics as module
from qbus.broker.group.metrics import GroupLag
from qbus.broker.metrics import OTHERS, BoundedNames, Metrics


class Groups:
    """A coordinator that has stored these offsets."""

    def __init__(self, *stored: tuple[str, str, dict[int, int]]) -> None:
        self.stored = list(stored)

    def committed(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        yield from self.stored


def lag_of(groups: Groups, ends: dict[tuple[str, int], int]) -> GroupLag:
    return GroupLag(groups, lambda topic, index: ends.get((topic, index)))  # type: ignore[arg-type]


def test_the_partitions_of_a_topic_are_summed() -> None:
    groups = Groups(("g", "t", {0: 5, 1: 10}), ("g", "u", {0: 0}), ("h", "t", {0: 7}))
    lag = lag_of(groups, {("t", 0): 7, ("t", 1): 20, ("u", 0): 3})
    assert dict(lag.read()) == {("g", "t"): 12, ("g", "u"): 3, ("h", "t"): 0}
    assert lag.unknown_partitions == 0


def test_what_is_committed_beyond_the_end_is_no_lag() -> None:
    assert dict(lag_of(Groups(("g", "t", {0: 9})), {("t", 0): 5}).read()) == {("g", "t"): 0}


def test_partitions_that_are_not_here_are_counted_and_left_out() -> None:
    lag = lag_of(Groups(("g", "t", {0: 5, 1: 5, 2: 5})), {("t", 1): 6})
    assert dict(lag.read()) == {("g", "t"): 1}
    assert lag.unknown_partitions == 2
    lag.read()
    assert lag.unknown_partitions == 2, "not twice"


def test_what_is_left_out_is_of_the_same_scrape() -> None:
    metrics, groups = Metrics(), Groups(("g", "t", {0: 5, 1: 5}))
    lag_of(groups, {("t", 1): 6}).register(metrics)
    registry = CollectorRegistry()
    registry.register(metrics)
    groups.stored = [("g", "t", {0: 5, 1: 5, 2: 5})]
    lines = generate_latest(registry).decode().splitlines()
    assert 'qbus_group_lag{group="g",topic="t"} 1.0' in lines
    assert "qbus_group_lag_unknown_partitions 2.0" in lines


def test_those_beyond_the_bound_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BoundedNames", lambda: BoundedNames(1))
    groups = Groups(("a", "t", {0: 0}), ("b", "t", {0: 1}), ("c", "t", {0: 2}))
    lag = lag_of(groups, {("t", 0): 10})
    assert dict(lag.read()) == {("a", "t"): 10, (OTHERS, OTHERS): 17}
    del groups.stored[0]
    assert dict(lag.read()) == {("b", "t"): 9, (OTHERS, OTHERS): 8}, "the place is free again"
