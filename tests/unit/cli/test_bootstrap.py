"""Where the cluster is."""

import click
import pytest

from qbus.cli.bootstrap import bootstrap


@pytest.mark.parametrize(
    "text", ["a:1", "a:1, b:2,", "broker.example", "[::1]", "[::1]:9093", "zk://a,b:2181/qbus"]
)
def test_the_text_is_kept_for_the_clients(text: str) -> None:
    assert bootstrap(text) == text


@pytest.mark.parametrize(
    "text", ["", " ,", "a:b", ":9092", "::1", "a:70000", "zk://", "zk://a:b", "zk://a//b"]
)
def test_what_is_no_cluster(text: str) -> None:
    with pytest.raises(click.BadParameter):
        bootstrap(text)
