"""The bootstrap string."""

import pytest

from qbus.clients.net.addresses import parse_bootstrap
from qbus.errors import ConfigError

GOOD = [
    ("localhost:9092", [("localhost", 9092)]),
    ("a:1,b:2", [("a", 1), ("b", 2)]),
    (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
    ("broker", [("broker", 9092)]),
    ("[::1]:1234", [("::1", 1234)]),
    ("[::1]", [("::1", 9092)]),
]


@pytest.mark.parametrize(("text", "addresses"), GOOD)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:x",
        "a:-1",
        "a:\u0661",
        "::1",
        "a:b:1",
        "[]",
        "[]:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap(text)
