"""What cannot be a record is refused when it is sent."""

from typing import Any

import pytest

from qbus.clients.producer.checks import check_item, check_many


@pytest.mark.parametrize(
    ("key", "value", "headers", "timestamp"),
    [
        (None, None, (), None),
        (b"k", b"v", [("h", b"x"), ("n", None)], 0),
        (bytearray(b"k"), memoryview(b"v"), (), -1),
        (None, b"", (), 2**63 - 1),
    ],
)
def test_what_can_be_a_record(key: Any, value: Any, headers: Any, timestamp: Any) -> None:
    check_item(key, value, headers, timestamp)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        ("k", b"v", ()),
        (b"k", "v", ()),
        (b"k", 5, ()),
        (None, b"v", [(b"h", b"x")]),
        (None, b"v", [("h", "x")]),
    ],
)
def test_what_is_not_bytes(key: Any, value: Any, headers: Any) -> None:
    with pytest.raises(TypeError):
        check_item(key, value, headers, None)


@pytest.mark.parametrize("timestamp", [-2, 2**63])
def test_what_is_no_time(timestamp: int) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        check_item(None, b"v", (), timestamp)
    with pytest.raises(ValueError, match="timestamp"):
        check_many([b"v"], None, timestamp)


def test_many_are_checked_too() -> None:
    check_many([b"a", bytearray(b"b")], [None, b"k"], 0)
    wrong: list[Any] = [b"a", "b", None]
    with pytest.raises(TypeError, match="NoneType, str"):
        check_many(wrong, None, None)
    with pytest.raises(TypeError, match="int"):
        check_many([b"a", b"b"], [b"k", 5], None)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        check_many([b"a", b"b"], [b"k"], None)
