"""Where the cluster is."""

import click
import pytest

from qbus.cli.bootstrap import addresses, bootstrap


def test_one_broker_or_several() -> None:
    assert addresses("a:1") == [("a", 1)]
    assert addresses("a:1, b:2,") == [("a", 1), ("b", 2)]


def test_the_port_may_be_left_out() -> None:
    assert addresses("broker.example") == [("broker.example", 9092)]
    assert addresses("[::1]") == [("::1", 9092)]
    assert addresses("[::1]:9093") == [("::1", 9093)]


def test_the_text_is_kept_for_the_clients() -> None:
    assert bootstrap("a:1,b:2") == "a:1,b:2"


@pytest.mark.parametrize("text", ["", " ,", "a:b", ":9092", "::1", "a:70000"])
def test_what_is_no_broker(text: str) -> None:
    with pytest.raises(click.BadParameter):
        bootstrap(text)
