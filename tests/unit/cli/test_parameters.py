"""Option values, read from text."""

import click
import pytest

from qbus.cli.parameters import Position, bootstrap, key_value, position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("0", Position("offset", 0)),
        ("1030430", Position("offset", 1_030_430)),
        ("@1767225600", Position("time", 1_767_225_600_000)),
        ("2026-01-01T00:00:00Z", Position("time", 1_767_225_600_000)),
    ],
)
def test_positions(text: str, expected: Position) -> None:
    assert position(text) == expected


@pytest.mark.parametrize("text", ["", "first", "-1", "1.5", "²", "2026-02-30"])
def test_invalid_positions(text: str) -> None:
    with pytest.raises(click.BadParameter, match="earliest, latest or an offset"):
        position(text)


def test_a_key_and_a_value() -> None:
    assert key_value("retention.ms=1000") == ("retention.ms", "1000")
    assert key_value(" a = b=c ") == ("a", "b=c")
    assert key_value("a=") == ("a", "")


@pytest.mark.parametrize("text", ["", "retention.ms", "=1000", " =1"])
def test_invalid_key_values(text: str) -> None:
    with pytest.raises(click.BadParameter, match="key=value"):
        key_value(text)


@pytest.mark.parametrize(
    "text", ["a:1", "a:1, b:2,", "broker.example", "[::1]", "[::1]:9093", "zk://a,b:2181/qbus"]
)
def test_a_bootstrap_is_kept_as_text(text: str) -> None:
    assert bootstrap(text) == text


@pytest.mark.parametrize(
    "text", ["", " ,", "a:b", ":9092", "::1", "a:70000", "zk://", "zk://a:b", "zk://a//b"]
)
def test_invalid_bootstraps(text: str) -> None:
    with pytest.raises(click.BadParameter):
        bootstrap(text)
