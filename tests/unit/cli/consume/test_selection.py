"""Which topics and partitions a command line names."""

import click
import pytest

from qbus.cli.consume.selection import Selection
from qbus.errors import ApiError

EXISTING = ["web", "web-1", "old-web", "db.a"]


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["web"], ["web"]),
        (["b", "a", "b"], ["b", "a"]),
        (["^web"], ["web", "web-1"]),
        (["^web$"], ["web"]),
        (["^web-", "^db"], ["db.a", "web-1"]),
        (["^.*web"], ["old-web", "web", "web-1"]),
        (["^web|^db"], ["db.a", "web", "web-1"]),
        (["^none"], []),
    ],
)
def test_names_and_patterns(topics: list[str], expected: list[str]) -> None:
    assert Selection.parse(topics).matching(EXISTING) == expected


def test_a_name_beside_a_pattern_is_wanted_whether_it_exists_or_not() -> None:
    selection = Selection.parse(["^db", "a.b"])
    assert selection.matching(EXISTING) == ["a.b", "db.a"]
    assert selection.pattern is not None
    assert selection.pattern.fullmatch("a.b")
    assert not selection.pattern.fullmatch("axb"), "a name is no pattern"


@pytest.mark.parametrize("topics", [["^web("], ["^[a-"]])
def test_a_pattern_that_is_none(topics: list[str]) -> None:
    with pytest.raises(click.UsageError, match="is not a pattern: "):
        Selection.parse(topics)


@pytest.mark.parametrize("topics", [["a", "b"], ["^a"]])
def test_partitions_are_of_one_topic(topics: list[str]) -> None:
    with pytest.raises(click.UsageError, match="--partition is for one topic"):
        Selection.parse(topics, [0])


@pytest.mark.parametrize("topics", [["a b"], ["^a", "b/c"], [""]])
def test_what_cannot_be_a_name(topics: list[str]) -> None:
    with pytest.raises(ApiError, match="the topic name"):
        Selection.parse(topics)


def test_partitions_once_each_in_order() -> None:
    assert Selection.parse(["a"], [2, 0, 2]).partitions == (0, 2)
