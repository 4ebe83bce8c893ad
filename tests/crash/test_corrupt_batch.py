"""A batch that went bad where no other replica has it: what commands and clients see.

Small batches with good ones behind the bad one, above the recovery point: no checkpoint comes
before the kill.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from qbus.clients import ShareConsumer
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port

from .test_sigkill import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

Headers = list[tuple[str, str | bytes | None]]

_COUNT = 10
_BAD = 1
_PATIENCE_S = 10.0


def value(number: int) -> bytes:
    return b"line %d " % number + b"x" * 30


def fill(bootstrap: str, topic: str, **settings: str) -> None:
    """Ten batches of one record each."""
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(_COUNT):
        producer.produce(topic, value(number), partition=0)
        assert producer.flush(30) == 0


def spoil(path: Path, batch: int) -> None:
    """Flip a byte among the records of the batch with this number."""
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(batch):
        position += int.from_bytes(data[position + 8 : position + 12]) + 12
    data[position + 70] ^= 0xFF
    path.write_bytes(data)


def qbus(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "qbus", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "300"},
        check=False,
    )


def lines(done: "subprocess.CompletedProcess[bytes]") -> list[bytes]:
    return done.stdout.splitlines()


def read(
    bootstrap: str,
    topic: str,
    offset: int,
    *,
    until: Callable[[list[bytes]], bool],
    **settings: Any,
) -> tuple[list[bytes], list[KafkaError], Consumer]:
    """What librdkafka gives an application from an offset on, until it reports an error."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    values: list[bytes] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and not errors and not until(values):
        message = consumer.poll(0.2)
        if message is None:
            continue
        error, content = message.error(), message.value()
        if error is not None:
            errors.append(error)
        elif content is not None:
            values.append(content)
    return values, errors, consumer


def never(_: list[bytes]) -> bool:
    return False


def test_the_rest_of_a_partition_is_served_and_the_batch_is_named(tmp_path: Path) -> None:
    metrics = free_port()
    data = tmp_path / "data"
    segment = data / "small-0" / f"{0:020d}.log"
    others = [value(number) for number in range(_COUNT) if number != _BAD]
    with BrokerProcess(data, "--metrics-listen", f"127.0.0.1:{metrics}") as broker:
        boot = ("--bootstrap", broker.bootstrap)
        create_topic(broker.bootstrap, "small", 1)
        fill(broker.bootstrap, "small")
        broker.kill()
        spoil(segment, _BAD)
        broker.start()

        described = qbus("topic", "describe", "small", *boot)
        said = f"small-0 on broker 1: offset {_BAD} is damaged, {segment} at "
        assert said in described.stdout.decode()
        assert f"{_COUNT} records" in described.stdout.decode()
        assert said in qbus("cluster", "status", *boot).stdout.decode()
        (entry,) = json.loads(qbus("cluster", "status", "--json", *boot).stdout)["damaged"]
        assert (entry["first_offset"], entry["last_offset"]) == (_BAD, _BAD)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as response:
            text = response.read().decode()
        labels = f'offset="{_BAD}",partition="0",topic="small"'
        assert f"qbus_damaged_offsets{{{labels}}} 1.0" in sorted_labels(text)

        stopped = qbus("consume", "small", "--from", "earliest", "--exit-at-end", *boot)
        assert (stopped.returncode, lines(stopped)) == (1, others[:_BAD])
        assert b"CORRUPT_MESSAGE" in stopped.stderr
        passed = qbus(
            "consume", "small", "--from", "earliest", "--exit-at-end", "--skip-corrupt", *boot
        )
        assert (passed.returncode, lines(passed)) == (0, others)
        assert qbus("produce", "small", "-", *boot, stdin=b"behind\n").returncode == 0
        behind = qbus("consume", "small", "--from", "5", "--exit-at-end", *boot)
        assert lines(behind) == [*(value(number) for number in range(5, _COUNT)), b"behind"]

        values, errors, consumer = read(broker.bootstrap, "small", 0, until=never)
        assert values == others[:_BAD]
        assert [error.code() for error in errors] == [KafkaError.INVALID_MSG], "it is not silent"
        consumer.seek(TopicPartition("small", 0, _BAD + 1))
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        assert message.value() == others[_BAD]
        consumer.close()

        broker.stop()
        shown = qbus("log", "salvage", str(data))
        assert (shown.returncode, b"Nothing was changed" in shown.stdout) == (1, True)
        assert qbus("log", "salvage", str(data), "small-0", "--execute").returncode == 0
        broker.start()
        whole = qbus("consume", "small", "--from", "earliest", "--exit-at-end", *boot)
        assert (whole.returncode, lines(whole)) == (0, [*others, b"behind"])
        values, errors, consumer = read(broker.bootstrap, "small", 0, until=never)
        consumer.close()
        assert values == [*others, b"behind"]
        assert [error.code() for error in errors] == [KafkaError._PARTITION_EOF]
        assert "damaged" not in qbus("topic", "describe", "small", *boot).stdout.decode()


def sorted_labels(text: str) -> str:
    """The samples with their labels in alphabetical order."""
    found = []
    for line in text.splitlines():
        name, bracket, rest = line.partition("{")
        labels, _, number = rest.partition("}")
        in_order = ",".join(sorted(labels.split(",")))
        found.append(f"{name}{{{in_order}}}{number}" if bracket else line)
    return "\n".join(found)


def transaction(bootstrap: str, identity: str, *contents: bytes, commit: bool = True) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": identity})
    producer.init_transactions(30)
    producer.begin_transaction()
    for content in contents:
        producer.produce("paid", content, partition=0)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_a_lost_marker_leaves_its_transaction_open_until_somebody_ends_it(tmp_path: Path) -> None:
    """Nobody may guess whether it was committed: readers of committed records wait, others not."""
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap, "paid", 1)
        transaction(broker.bootstrap, "one", b"a")  # batches 0 and 1
        transaction(broker.bootstrap, "two", b"b")  # 2, and its marker 3
        transaction(broker.bootstrap, "three", b"c")
        broker.kill()
        spoil(tmp_path / "paid-0" / f"{0:020d}.log", 3)
        broker.start()
        assert "its end may be in the damaged batches of offset 3" in broker.log_text()

        committed = {"isolation.level": "read_committed"}
        values, errors, consumer = read(broker.bootstrap, "paid", 0, until=never, **committed)
        consumer.close()
        assert values == [b"a"]
        assert [error.code() for error in errors] == [KafkaError._PARTITION_EOF]
        values, errors, consumer = read(
            broker.bootstrap, "paid", 4, until=bool, **{"isolation.level": "read_uncommitted"}
        )
        consumer.close()
        assert values == [b"c"]

        boot = ("--bootstrap", broker.bootstrap)
        place = ("--topic", "paid", "--partition", "0", "--start-offset", "2")
        ended = qbus("transaction", "abort", *place, *boot)
        assert ended.returncode == 0, ended.stderr
        values, errors, consumer = read(broker.bootstrap, "paid", 4, until=bool, **committed)
        consumer.close()
        assert values == [b"c"]


@pytest.mark.nightly
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("is_salvaged", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_delayed_records_around_a_bad_batch_are_delivered(
    tmp_path: Path, bad: int, is_salvaged: bool, is_killed: bool
) -> None:
    """The first batch is held back, the second one is visible."""
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap, "late", 1, **{"qbus.delay.enable": "true"})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        due = str(int(time.time() * 1000) + 8000).encode()
        held: Headers = [("qbus-deliver-at", due)]
        headers: dict[int, Headers] = {0: held, 1: [], 2: held, 3: []}
        for number, stated in headers.items():
            producer.produce("late", value(number), partition=0, headers=stated)
            assert producer.flush(30) == 0
        if is_killed:
            broker.kill()
        else:
            broker.stop()  # which writes down what is held back
        spoil(tmp_path / "late-0" / f"{0:020d}.log", bad)
        if is_salvaged:
            assert qbus("log", "salvage", str(tmp_path), "--execute").returncode == 0
        broker.start()
        expected = sorted(value(number) for number in headers if number != bad)
        boot = ("--bootstrap", broker.bootstrap)
        deadline = time.monotonic() + 30
        found: list[bytes] = []
        while found != expected and time.monotonic() < deadline:
            options = () if is_salvaged else ("--skip-corrupt",)
            done = qbus("consume", "late", "--from", "0", "--exit-at-end", *options, *boot)
            assert done.returncode == 0, done.stderr
            found = sorted(lines(done))
        assert found == expected


async def taken(bootstrap: str, until: int, timeout: float) -> list[bytes]:
    """The values that a share group is given, until it has so many or the time is up."""
    found: list[bytes] = []
    async with ShareConsumer(bootstrap, "g", ["jobs"]) as consumer:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while len(found) < until:
                    found += [one.value or b"" for one in await consumer.poll(0.5)]
    return found


def test_a_share_group_is_given_what_is_around_a_bad_batch(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap, "jobs", 1)
        assert asyncio.run(taken(broker.bootstrap, 1, 2.0)) == [], "the group begins here"
        fill(broker.bootstrap, "jobs")
        broker.kill()
        spoil(tmp_path / "jobs-0" / f"{0:020d}.log", 4)  # the group's own batch is the first one
        broker.start()
        found = asyncio.run(taken(broker.bootstrap, _COUNT - 1, 15.0))
        assert found == [value(number) for number in range(_COUNT) if number != 3]
        assert "they are neither given out nor given up" in broker.log_text()
