"""Which partitions are read: named topics, a pattern, or chosen partitions."""

from uuid import UUID

import pytest

from qbus.clients.spark.options import OptionError, Options
from qbus.clients.spark.source.subscription import Subscription
from qbus.clients.types import PartitionDescription, TopicDescription, TopicPartition


def topic(name: str, partitions: int = 2, *, internal: bool = False) -> TopicDescription:
    return TopicDescription(
        name,
        UUID(int=1),
        internal,
        tuple(PartitionDescription(index, 0, 0, (), (), ()) for index in range(partitions)),
    )


TOPICS = [topic("b", 1), topic("a"), topic("ab"), topic("__state", internal=True)]


def selected(**given: str) -> list[TopicPartition]:
    return Subscription.of(Options(given)).select(TOPICS)


def test_topics_are_named() -> None:
    assert selected(subscribe=" a, b,") == [("a", 0), ("a", 1), ("b", 0)]
    assert selected(subscribe="missing") == []


def test_a_pattern_is_of_whole_names_and_not_of_internal_topics() -> None:
    assert selected(subscribePattern="a.*") == [("a", 0), ("a", 1), ("ab", 0), ("ab", 1)]
    assert selected(subscribePattern=".") == [("a", 0), ("a", 1), ("b", 0)]
    assert selected(subscribePattern="__.*") == []
    assert selected(subscribe="__state") == [("__state", 0), ("__state", 1)]


def test_partitions_are_chosen() -> None:
    assert selected(assign='{"a": [1], "b": [0, 7]}') == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option subscribe: name the topics"),
        ({"subscribe": "a", "subscribePattern": "a"}, "use one"),
        ({"subscribe": ","}, "names of topics"),
        ({"subscribe": " "}, "empty"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "a-0"}, "not JSON"),
        ({"assign": "{}"}, "give partitions"),
        ({"assign": '{"a": 1}'}, "give partitions"),
        ({"assign": '{"a": [-1]}'}, "give partitions"),
        ({"assign": '{"a": [true]}'}, "give partitions"),
        ({"assign": "[1]"}, "give partitions"),
    ],
)
def test_empty_selections_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Subscription.of(Options(given))


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"subscribe": "orders"}, "orders"),
        ({"subscribe": "b,c,a"}, "a-and-2"),
        ({"assign": '{"a": [0], "b": [1]}'}, "a-and-1"),
        ({"subscribePattern": "a.*"}, "pattern"),
        ({"subscribe": "x" * 249}, "x" * 60),
    ],
)
def test_a_label_says_what_is_read(given: dict[str, str], label: str) -> None:
    assert Subscription.of(Options(given)).label == label
