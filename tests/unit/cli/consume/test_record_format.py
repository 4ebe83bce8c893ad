"""Consumed records, written exactly."""

import json
from base64 import b64decode

import pytest

from qbus.cli.consume.record_format import json_objects, raw_values, raw_with_keys, template
from qbus.clients.types import PartitionRecords
from qbus.records import ConsumerRecord, TimestampType


def record(
    value: bytes | None,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ConsumerRecord:
    return ConsumerRecord(
        "t", 1, 42, 1_700_000_000_000, key, value, headers, TimestampType.CREATE_TIME
    )


def batch(*records: ConsumerRecord) -> PartitionRecords:
    return PartitionRecords("t", 1, list(records))


def test_raw_is_the_value_and_a_newline_whatever_the_bytes() -> None:
    records = [record(b"a\r"), record(b""), record(b"\0\xff"), record(None)]
    assert raw_values(batch(*records)) == b"a\r\n\n\0\xff\n\n"


def test_nothing_is_written_for_no_records() -> None:
    assert raw_values(batch()) == b""
    assert json_objects(batch()) == b""
    assert raw_with_keys(b":")(batch()) == b""


def test_keys_stand_before_the_separator() -> None:
    records = [record(b"v", b"k"), record(b"v"), record(None, b"k"), record(b"v", b"")]
    assert raw_with_keys(b"\t")(batch(*records)) == b"k\tv\nv\nk\t\n\tv\n"


def test_json_holds_the_whole_record() -> None:
    line = json_objects(batch(record("é".encode(), b"k", (("h", b"x"), ("n", None)))))
    assert line.endswith(b"\n")
    assert "é".encode() in line
    assert json.loads(line) == {
        "topic": "t",
        "partition": 1,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create_time",
        "key": "k",
        "value": "é",
        "headers": [{"key": "h", "value": "x"}, {"key": "n", "value": None}],
    }


def test_json_says_where_bytes_are_base64() -> None:
    document = json.loads(json_objects(batch(record(b"\xff\0", None, (("h", b"\xfe"),)))))
    assert document["value_encoding"] == "base64"
    assert b64decode(document["value"]) == b"\xff\0"
    assert document["key"] is None
    assert "key_encoding" not in document
    assert document["headers"] == [{"key": "h", "value": "/g==", "value_encoding": "base64"}]


def test_json_is_one_line_even_for_values_with_newlines() -> None:
    assert json_objects(batch(record(b"a\nb"), record(b"c"))).count(b"\n") == 2


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t %p %o %T\n", b"t 0 5 1700000000000\n"),
        (r"%k\t%s\n", b"k\tv\n"),
        ("%K %S %h", b"1 1 a=1,b="),
        (r"100%% \\ \0", b"100% \\ \0"),
        ("d\u00e9j\u00e0", "d\u00e9j\u00e0".encode()),
    ],
)
def test_a_template_as_kcats(text: str, printed: bytes) -> None:
    headers = (("a", b"1"), ("b", None))
    found = ConsumerRecord(
        "t", 0, 5, 1_700_000_000_000, b"k", b"v", headers, TimestampType.CREATE_TIME
    )
    assert template(text)(PartitionRecords("t", 0, [found])) == printed


def test_sizes_of_what_is_not_there() -> None:
    found = ConsumerRecord("t", 0, 5, 0, None, None, (), TimestampType.CREATE_TIME)
    assert template("%K %S[%k%s]")(PartitionRecords("t", 0, [found])) == b"-1 -1[]"


@pytest.mark.parametrize("text", ["%x", "%", "%Z %s"])
def test_an_unknown_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not known; there are %t %p"):
        template(text)
