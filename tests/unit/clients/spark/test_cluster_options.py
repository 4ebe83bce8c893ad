"""Where the cluster is: under Kafka's name or ours, and plain."""

import pytest

from qbus.clients.spark.cluster_options import ClusterOptions
from qbus.clients.spark.options import OptionError, Options


def parsed(**given: str) -> ClusterOptions:
    """What is made of options with ``__`` for dots."""
    names = {name.replace("__", "."): value for name, value in given.items()}
    return ClusterOptions.of(Options(names), "me")


@pytest.mark.parametrize("name", ["kafka__bootstrap__servers", "qbus__bootstrap"])
def test_either_name_says_where_the_cluster_is(name: str) -> None:
    assert parsed(**{name: " one:9092,two:9092 "}).bootstrap == "one:9092,two:9092"


def test_the_rest_has_defaults() -> None:
    found = parsed(qbus__bootstrap="zk://one:2181/qbus")
    assert (found.client_id, found.request_timeout, found.metadata_max_age) == ("me", 30, 300)


def test_the_rest_can_be_chosen() -> None:
    found = parsed(
        qbus__bootstrap="one:9092", kafka__client__id="you", kafka__request__timeout__ms="1500"
    )
    assert (found.client_id, found.request_timeout) == ("you", 1.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name the brokers"),
        ({"qbus__bootstrap": ""}, "give host:port"),
        ({"qbus__bootstrap": "one:port"}, "give host:port"),
        ({"qbus__bootstrap": "zk://"}, "zk://host:port"),
        ({"qbus__bootstrap": "a:1", "kafka__bootstrap__servers": "b:1"}, "give one"),
        ({"qbus__bootstrap": "a:1", "kafka__security__protocol": "SSL"}, "PLAINTEXT"),
        ({"qbus__bootstrap": "a:1", "kafka__request__timeout__ms": "0"}, "at least 1"),
    ],
)
def test_invalid_cluster_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parsed(**given)
