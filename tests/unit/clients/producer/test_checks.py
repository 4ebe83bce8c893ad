"""What cannot be a record is refused when it is sent."""

from collections import UserList, deque
from typing import Any

import pytest

from qbus.clients.producer.checks import check_item, checked_columns


@pytest.mark.parametrize(
    ("key", "value", "headers", "timestamp"),
    [
        (None, None, (), None),
        (b"k", b"v", [("h", b"x"), ("n", None)], 0),
        (bytearray(b"k"), memoryview(b"v"), (), -1),
        (None, b"", None, 2**63 - 1),
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
        checked_columns([b"v"], None, None, [timestamp])


@pytest.mark.parametrize("timestamp", ["now", 1.5, True])
def test_what_is_no_number(timestamp: Any) -> None:
    with pytest.raises(TypeError, match="timestamp"):
        check_item(None, b"v", (), timestamp)


def test_headers_are_pairs_and_their_names_unicode() -> None:
    with pytest.raises(TypeError, match="list of pairs"):
        check_item(None, b"v", {"a": b"b"}, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="surrogates"):
        check_item(None, b"v", [("\udc00", b"b")], None)


def test_many_are_checked_too() -> None:
    checked_columns(
        [b"a", bytearray(b"b"), None], [None, b"k", b""], [None, (), [("h", None)]], [0, -1, None]
    )
    wrong: list[Any] = [b"a", "b", 5]
    with pytest.raises(TypeError, match="int, str"):
        checked_columns(wrong, None, None, None)
    with pytest.raises(TypeError, match="int"):
        checked_columns([b"a", b"b"], [b"k", 5], None, None)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="header's name"):
        checked_columns([b"a"], None, [[(b"h", b"")]], None)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a list"):
        checked_columns(b"value", None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["keys", "headers", "timestamps"])
def test_columns_are_of_one_length(column: str) -> None:
    columns: dict[str, Any] = {"keys": None, "headers": None, "timestamps": None, column: [None]}
    with pytest.raises(ValueError, match=f"1 {column} for 2 values"):
        checked_columns([b"a", b"b"], **columns)


def test_other_sequences_become_lists() -> None:
    listed = checked_columns(deque([b"a", b"b"]), (b"k", None), UserList([[], None]), None)
    assert listed == ([b"a", b"b"], (b"k", None), [[], None], None)
    with pytest.raises(TypeError, match="not int"):
        checked_columns((number for number in [1]), None, None, None)  # type: ignore[arg-type]
