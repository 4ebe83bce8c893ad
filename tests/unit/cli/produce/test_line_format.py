"""What the lines mean that are produced."""

import json

import pytest

from qbus.cli.consume.record_format import json_objects
from qbus.cli.failures import Failure
from qbus.cli.produce.line_format import Columns, JsonLines, raw, with_constants
from qbus.clients.types import PartitionRecords
from qbus.records import ConsumerRecord, TimestampType

THEN = 1_700_000_000_000


def record(
    value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes | None]
) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 5, THEN, key, value, headers, TimestampType.CREATE_TIME)


@pytest.mark.parametrize(
    ("value", "key", "headers"),
    [
        (b"v", b"k", ()),
        (None, None, ()),
        (b"", b"", ()),
        (b"\xff\x00", b"\xfe", (("a", b"1"), ("a", None), ("b", b"\xff"))),
        ("d\u00e9j\u00e0 vu\n".encode(), None, (("h", b""),)),
    ],
)
def test_what_consume_prints_as_json_goes_back_in(
    value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    printed = json_objects(PartitionRecords("t", 0, [record(value, key, *headers)]))
    columns = JsonLines()(printed.splitlines())
    assert columns.values == (value,)
    assert columns.keys == (key,)
    assert columns.headers == (list(headers) or None,)
    assert columns.timestamps == (THEN,)


def test_no_lines_are_no_records() -> None:
    assert JsonLines()([]) == Columns((), (), (), ())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", r"Expecting property name .* at character 2$"),
        (b"[1]", "an object is expected, not list"),
        (b"{}", "'value' is missing"),
        (b'{"value": 7}', "value is text or null, not int"),
        (b'{"value": "!", "value_encoding": "base64"}', "base64"),
        (b'{"value": "", "headers": [{}]}', "'key' is missing"),
        (b"\xff", "decode"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, reason: str) -> None:
    parse = JsonLines()
    parse([b'{"value": null}'])
    with pytest.raises(Failure, match=f"line 2 is not a record in JSON: .*{reason}"):
        parse([line])


def test_constants_are_for_records_without_their_own() -> None:
    parse = with_constants(raw(b":"), key=b"k", headers=[("h", b"1")], timestamp=7)
    assert parse([b"a:x", b"y"]) == Columns(
        [b"x", b"y"], [b"a", b"k"], [[("h", b"1")], [("h", b"1")]], [7, 7]
    )


def test_headers_of_the_line_come_behind_those_of_all() -> None:
    line = {"value": "v", "headers": [{"key": "own", "value": "2"}], "timestamp": 9}
    parse = with_constants(JsonLines(), key=None, headers=[("h", b"1")], timestamp=7)
    columns = parse([json.dumps(line).encode()])
    assert columns.headers == [[("h", b"1"), ("own", b"2")]]
    assert columns.timestamps == [9]


def test_without_constants_nothing_is_added() -> None:
    assert with_constants(raw(None), key=None, headers=(), timestamp=None)([b"a"]) == Columns(
        [b"a"]
    )
