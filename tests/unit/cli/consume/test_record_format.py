"""Consumed records, written exactly."""

import json
from base64 import b64decode

from qbus.cli.consume.record_format import json_objects, raw_values, raw_with_keys
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
