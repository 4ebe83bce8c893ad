"""Addresses in configuration."""

import pytest

from qbus.config import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        (":9092", Address("", 9092)),
        ("[::1]:9092", Address("::1", 9092)),
        ("PLAINTEXT://bus.example:65535", Address("bus.example", 65535)),
        ("plaintext://[::]:1", Address("::", 1)),
        (" host:1 ", Address("host", 1)),
    ],
)
def test_reads(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "host:123456789",
        "host:٣",
        "::1:9092",
        "[::1]",
        "[[::1]]:1",
        "a b:1",
        "user@host:1",
        "host/path:1",
        "SSL://host:1",
        "SASL_PLAINTEXT://host:1",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_address(text)


@pytest.mark.parametrize("text", ["host:1", "[::1]:9092", ":9092"])
def test_writes_what_it_read(text: str) -> None:
    assert str(parse_address(text)) == text
