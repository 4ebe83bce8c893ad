"""kcat: an older librdkafka behind a command line."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from qbus.errors import ErrorCode
from tests.compat.members import Event, Member
from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from tests.compat.records import BINARY, NOTHING, NULL_HEADER, START_MS, Record, Stored

from .base import ClientError, Driver

# What no sample holds.
_KEY_END, _RECORD_END = "<+>", "<~>"
_FORMAT = r"%p %o %T %K %S %h\n%k%s"
_ERRORS = {
    "failed to validate record": ErrorCode.INVALID_RECORD,
    "Message size too large": ErrorCode.MESSAGE_TOO_LARGE,
    "Unknown topic or partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_REBALANCED = re.compile(r"% Group .* rebalanced \(memberid .*\): (assigned|revoked): ?(.*)")
_PLACE = re.compile(r"(\S+) \[(\d+)\]")


class Kcat(Driver):
    """The driver of kcat. It cannot give timestamps, nor send both empty and null values."""

    name = "kcat"
    sendable = tuple(
        record._replace(timestamp=None)
        for record in (*BINARY, NULL_HEADER)
        if record.value != b"" and b"\x00\xff" not in dict(record.headers).values()
    )
    # It shows headers as text.
    readable = (
        *(record for record in BINARY if b"\x00\xff" not in dict(record.headers).values()),
        NULL_HEADER,
        NOTHING,
        Record(b"h", b"v", (("ключ", "значение".encode()),), START_MS),
    )

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here."""
        return None if shutil.which("kcat") else "kcat is not installed"

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        settings = _settings(
            {
                "acks": acks,
                "enable.idempotence": str(idempotent).lower(),
                "message.max.bytes": "10000000",
            }
        )
        # The headers of a run of kcat are those of all its records.
        for headers, group in itertools.groupby(records, lambda record: record.headers):
            self._run(
                ["-P", "-t", topic, "-p", str(partition), "-Z", "-z", compression, *settings]
                + ["-K", _KEY_END, "-D", _RECORD_END]
                + [word for name, value in headers for word in ("-H", _header(name, value))],
                stdin=_RECORD_END.encode().join(_line(record) for record in group),
            )

    def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        start = str(offset) if offset >= 0 else "beginning"
        place = ["-C", "-t", topic, "-p", str(partition), "-o", start]
        return self._read([*place, "-c", str(count), "-f", _FORMAT])

    def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        return self._read(["-G", group, "-c", str(count), "-f", _FORMAT, topic])

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        answer = self._run(["-Q", "-t", f"{topic}:{partition}:{timestamp}"])
        return int(answer.split()[-1])

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self.offset_for_time(topic, partition, -2), self.offset_for_time(
            topic, partition, -1
        )

    def member(self, topic: str, group: str) -> Member:
        settings = _settings(
            {
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": "50",
                "session.timeout.ms": str(SESSION_TIMEOUT_MS),
                "heartbeat.interval.ms": str(HEARTBEAT_MS),
            }
        )
        command = ["kcat", "-b", self._bootstrap, "-u", "-G", group, *settings]
        return Member([*command, "-f", r"consumed %p %o\n", topic], _parse_member)

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in self._metadata()["topics"]}

    def partitions(self, topic: str) -> list[int]:
        (described,) = self._metadata("-t", topic)["topics"]
        if "error" in described:
            raise _error(described["error"])
        return sorted(one["partition"] for one in described["partitions"])

    def brokers(self) -> list[str]:
        return [broker["name"] for broker in self._metadata()["brokers"]]

    def _metadata(self, *arguments: str) -> Any:
        return json.loads(self._run(["-L", "-J", *arguments]))

    def _read(self, arguments: list[str]) -> list[Stored]:
        reset = _settings({"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"})
        return _parse(self._run([*reset, *arguments]))

    def _run(self, arguments: list[str], stdin: bytes = b"") -> bytes:
        security = _settings(self._security.librdkafka()) if self._security else []
        result = subprocess.run(
            ["kcat", "-b", self._bootstrap, *security, *arguments],
            input=stdin,
            capture_output=True,
            timeout=30,
            check=False,
        )
        if result.returncode != 0:
            raise _error(result.stderr.decode())
        return result.stdout


def _settings(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key
    return key + _KEY_END.encode() + (record.value or b"")


def _parse(output: bytes) -> list[Stored]:
    stored = []
    while output:
        head, _, output = output.partition(b"\n")
        partition, offset, timestamp, key_size, value_size, headers = head.split(b" ", 5)
        key, output = _take(output, int(key_size))
        value, output = _take(output, int(value_size))
        record = Record(key, value, _parse_headers(headers.decode()), int(timestamp))
        stored.append(Stored(int(partition), int(offset), record))
    return stored


def _take(output: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, output) if size < 0 else (output[:size], output[size:])


def _parse_headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)


def _parse_member(line: str) -> Event | None:
    if line.startswith("consumed "):
        _, partition, offset = line.split()
        return Event(consumed=(int(partition), int(offset)))
    rebalanced = _REBALANCED.match(line)
    if rebalanced is None:
        return None
    if rebalanced[1] == "revoked":
        return Event(assigned=frozenset())
    return Event(
        assigned=frozenset((topic, int(index)) for topic, index in _PLACE.findall(rebalanced[2]))
    )


def _error(text: str) -> ClientError:
    for words, code in _ERRORS.items():
        if words in text:
            return ClientError(code, text)
    raise AssertionError(f"kcat: {text}")
