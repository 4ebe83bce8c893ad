"""`qbus produce` and `qbus consume`: what goes in comes out, byte for byte."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration

AWKWARD = b"one\r\n\n\0binary \xff\xfe\nlast without newline"


def objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def consume(qbus: Qbus, topic: str, *options: str) -> bytes:
    return qbus("consume", topic, "--exit-at-end", *options)


def test_awkward_bytes_come_back(qbus: Qbus, topic: str) -> None:
    account = qbus.json("produce", topic, "--partition", "1", stdin=AWKWARD)
    assert account["partitions"] == [
        {"partition": 1, "records": 4, "first_offset": 0, "last_offset": 3}
    ]
    assert consume(qbus, topic) == AWKWARD + b"\n"


def test_a_large_file_comes_back_in_order(qbus: Qbus, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"".join(b"line %d %s\n" % (n, os.urandom(20).hex().encode()) for n in range(200_000))
    )
    account = qbus.json("produce", topic, str(path), "--compression", "lz4")
    assert account["records"] == 200_000
    assert account["bytes"] == path.stat().st_size
    lines = consume(qbus, topic).splitlines(keepends=True)
    assert sorted(lines) == sorted(path.read_bytes().splitlines(keepends=True))
    for partition in range(3):
        numbers = [
            int(line.split()[1])
            for line in consume(qbus, topic, "--partition", str(partition)).splitlines()
        ]
        assert numbers == sorted(numbers)


def test_empty_input_produces_no_records(qbus: Qbus, topic: str) -> None:
    assert qbus.json("produce", topic)["records"] == 0
    assert consume(qbus, topic) == b""


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_compression_and_acknowledgement(
    qbus: Qbus, topic: str, compression: str, acks: str
) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(1000))
    options = ("--compression", compression, "--acks", acks, "--partition", "0")
    assert qbus.json("produce", topic, *options, stdin=lines)["records"] == 1000
    assert wait_until(lambda: consume(qbus, topic) == lines, "all the lines")


def test_keys(qbus: Qbus, topic: str) -> None:
    qbus("produce", topic, "--key-separator", r"\t", stdin=b"k\tv\nno key\n\tempty key\n")
    assert sorted(consume(qbus, topic, "--key-separator", "=").splitlines()) == [
        b"=empty key",
        b"k=v",
        b"no key",
    ]
    found = {record["value"]: record["key"] for record in objects(consume(qbus, topic, "--json"))}
    assert found == {"v": "k", "no key": None, "empty key": ""}


def test_json_output_has_every_field_of_a_record(qbus: Qbus, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    qbus("produce", topic, "--partition", "2", stdin=b"text\n\xff\n")
    first, second = objects(consume(qbus, topic, "--format", "json"))
    assert before - 1 <= first.pop("timestamp") <= time.time_ns() // 1_000_000 + 1
    assert first == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp_type": "create_time",
        "key": None,
        "value": "text",
        "headers": [],
    }
    assert (second["value"], second["value_encoding"]) == ("/w==", "base64")


def test_where_reading_starts(qbus: Qbus, topic: str) -> None:
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n")
    middle = time.time()
    qbus("produce", topic, "--partition", "0", stdin=b"3\n4\n")
    assert consume(qbus, topic, "--from", "earliest") == b"0\n1\n2\n3\n4\n"
    assert consume(qbus, topic, "--from", "latest") == b""
    assert consume(qbus, topic, "--from", "2") == b"2\n3\n4\n"
    assert consume(qbus, topic, "--from", "99") == b""
    assert consume(qbus, topic, "--from", f"@{middle:.3f}") == b"3\n4\n"
    assert consume(qbus, topic, "--from", "1h") == b"0\n1\n2\n3\n4\n"
    assert qbus("consume", topic, "--count", "2", "--from", "1") == b"1\n2\n"


def test_a_group_goes_on_where_it_was(qbus: Qbus, topic: str, group: str) -> None:
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n")
    assert qbus("consume", topic, "--group", group, "--count", "1") == b"0\n"
    assert qbus("consume", topic, "--group", group, "--count", "2") == b"1\n2\n"
    assert consume(qbus, topic, "--group", group) == b"3\n"
    assert consume(qbus, topic, "--group", group) == b""


def test_where_a_new_group_starts(qbus: Qbus, topic: str, group: str) -> None:
    qbus("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n")
    assert qbus("consume", topic, "--group", group, "--from", "2", "--count", "1") == b"2\n"
    assert consume(qbus, topic, "--group", group, "--from", "0") == b"3\n"


def test_a_closed_pipe_ends_the_command_quietly(qbus: Qbus, topic: str) -> None:
    qbus("produce", topic, stdin=b"line of text\n" * 100_000)
    with qbus.start("consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"line of text\n"
        reading.stdout.close()
        assert reading.wait(30) == 141
        assert reading.stderr.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_member_commits_and_leaves(
    qbus: Qbus, topic: str, group: str, number: int, code: int
) -> None:
    qbus("produce", topic, stdin=b"one\n")
    command = ("consume", topic, "--group", group)
    with qbus.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stderr is not None
        assert member.stdout.readline() == b"one\n"
        member.send_signal(number)
        assert member.wait(30) == code
        assert member.stderr.read() == b""
    (described,) = qbus.json("group", "describe", group)
    assert described["members"] == []
    assert sum(offset["lag"] or 0 for offset in described["offsets"]) == 0


def test_lines_go_out_while_the_pipe_stays_open(qbus: Qbus, topic: str) -> None:
    with qbus.start(
        "produce", topic, "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as sending:
        assert sending.stdin is not None
        sending.stdin.write(b"early\nunfinished")
        sending.stdin.flush()
        assert qbus("consume", topic, "--count", "1") == b"early\n"
        sending.stdin.close()
        assert sending.wait(30) == 0
    assert consume(qbus, topic) in {b"early\nunfinished\n", b"unfinished\nearly\n"}


def test_produce_refuses_invalid_input(qbus: Qbus, topic: str, tmp_path: Path) -> None:
    assert "is a directory" in qbus.failure("produce", topic, str(tmp_path), code=2)
    assert "does not exist" in qbus.failure("produce", topic, str(tmp_path / "absent"), code=2)
    assert "partition 7" in qbus.failure("produce", topic, "--partition", "7", stdin=b"x\n")
    assert "INVALID_TOPIC" in qbus.failure("produce", "bad/name", stdin=b"x\n")
    error = qbus.failure("produce", topic, stdin=b"small\n" + bytes(3_000_000))
    assert "MESSAGE_TOO_LARGE" in error


def test_consume_refuses_invalid_input(qbus: Qbus, topic: str) -> None:
    assert "UNKNOWN_TOPIC" in qbus.failure("consume", "absent")
    assert "has no partition 7" in qbus.failure("consume", topic, "--partition", "7")
    assert "earliest, latest or an offset" in qbus.failure(
        "consume", topic, "--from", "sometime", code=2
    )
    qbus.failure("consume", topic, "--count", "0", code=2)
    qbus.failure("consume", topic, "--json", "--key-separator", ":", code=2)


def test_a_broker_that_is_not_there(qbus: Qbus) -> None:
    for command in (("produce", "t"), ("consume", "t"), ("topic", "list"), ("group", "list")):
        error = qbus.failure(*command, "--bootstrap", "127.0.0.1:1", stdin=b"x\n")
        assert "Connection refused" in error
        assert "qbus broker" in error


def test_json_goes_out_and_back_in(qbus: Qbus, topic: str) -> None:
    options = ("--key", "k", "--header", "a=1", "--header", "a=2", "--timestamp", "1700000000000")
    qbus("produce", topic, *options, stdin=AWKWARD)
    printed = consume(qbus, topic, "--format", "json")
    copy = f"{topic}-copy"
    account = qbus.json("produce", copy, "--format", "json", stdin=printed)
    assert account["records"] == 4
    fields = ("key", "value", "headers", "timestamp")

    def essence(output: bytes) -> list[list[Any]]:
        return [[found[field] for field in fields] for found in objects(output)]

    assert essence(consume(qbus, copy, "--format", "json")) == essence(printed)
    assert essence(printed)[0] == [
        "k",
        "one\r",
        [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}],
        1_700_000_000_000,
    ]
    assert consume(qbus, copy, "-f", r"%k %T %h\n") == b"k 1700000000000 a=1,a=2\n" * 4


def test_a_topic_made_by_the_way_is_told(qbus: Qbus, topic: str) -> None:
    done = qbus.run("produce", f"{topic}-new", stdin=b"a\n")
    assert f"Created topic {topic}-new with 1 partition.".encode() in done.stderr
    assert b"Created" not in qbus.run("produce", f"{topic}-new", stdin=b"a\n").stderr


def test_ctrl_c_counts_what_was_sent(qbus: Qbus, topic: str) -> None:
    with qbus.start("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(b"a\nb\n")
        running.stdin.flush()
        wait_until(lambda: consume(qbus, topic) == b"a\nb\n", "both")
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Produced 2 records" in told


def test_several_topics_and_patterns(qbus: Qbus) -> None:
    for name in ("many-a", "many-b", "other-many"):
        qbus("topic", "create", name)
        qbus("produce", name, stdin=name.encode())
    both = [b"many-a", b"many-b"]
    assert sorted(qbus("consume", "many-a", "many-b", "--exit-at-end").split()) == both
    assert sorted(qbus("consume", "^many", "--exit-at-end").split()) == both
    assert sorted(qbus("consume", "^many", "--group", "of-many", "--exit-at-end").split()) == both
    assert "is not a pattern" in qbus.failure("consume", "^many(", code=2)
    assert "is for one topic" in qbus.failure("consume", "^m", "--partition", "0", code=2)


def test_reading_ends_where_it_is_told_to(qbus: Qbus, topic: str) -> None:
    for at, lines in ((1_000, b"0\n1\n"), (2_000, b"2\n3\n4\n")):
        qbus("produce", topic, "--partition", "0", "--timestamp", str(at), stdin=lines)

    def until(position: str, *options: str) -> bytes:
        options = ("--partition", "0", "--until", position, *options)
        return b"".join(qbus("consume", topic, *options).split())

    assert until("3") == b"012"
    assert until("4", "--from", "1") == b"123"
    assert until("3", "--from", "3") == b""
    assert until("1970-01-01T00:00:02Z") == b"01"
    assert until("15m") == b"01234"
    assert until("latest") == b"01234"
    assert "would read nothing" in qbus.failure("consume", topic, "--until", "earliest", code=2)
    assert "either" in qbus.failure("consume", topic, "--until", "1", "--exit-at-end", code=2)


def test_times_are_taken_as_they_are_printed(qbus: Qbus, topic: str) -> None:
    for at in (1_767_225_600_000, 1_767_225_600_500):
        qbus("produce", topic, "--partition", "0", "--timestamp", str(at), stdin=b"%d\n" % at)
    printed = qbus("consume", topic, "--exit-at-end", "-f", r"%T\n").split()
    assert printed == [b"1767225600000", b"1767225600500"]
    found = qbus("consume", topic, "--exit-at-end", "--from", f"@{printed[1].decode()}")
    assert found.split() == printed[1:]
