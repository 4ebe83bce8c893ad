"""A compacted topic of a real broker, written and read by librdkafka."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TOPIC = "table"
KEYS = 50
ROUNDS = 40


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "-o", "log.cleaner.backoff.ms=50") as broker:
        yield broker


def create(broker: BrokerProcess, **config: str) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "20000", **config}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)]).values():
        created.result(30)


def fill(broker: BrokerProcess, rounds: int, codec: str = "none") -> dict[bytes, bytes]:
    """Write each key once a round; what is to be left."""
    settings: Any = {"bootstrap.servers": broker.bootstrap, "compression.type": codec}
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    expected: dict[bytes, bytes] = {}
    dice = random.Random(rounds)
    for _ in range(rounds):
        for key in range(KEYS):
            expected[b"%d" % key] = dice.randbytes(60)
            producer.produce(TOPIC, expected[b"%d" % key], b"%d" % key)
        producer.flush(30)
    return expected


def read(broker: BrokerProcess) -> list[tuple[int, bytes | None, bytes | None]]:
    """All that a consumer gets from the start."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    partition = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while consumer.position([partition])[0].offset < end:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            found.append((message.offset() or 0, message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize(
    "codec",
    ["lz4", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("none", "zstd"))],
)
def test_a_table_shrinks_to_its_newest_records(broker: BrokerProcess, codec: str) -> None:
    create(broker)
    expected = fill(broker, ROUNDS, codec)
    directory = broker.data_dir / f"{TOPIC}-0"

    def size() -> int:
        return sum(path.stat().st_size for path in directory.glob("*.log") if path.exists())

    wait_until(lambda: size() < 40_000, "it is compacted", timeout=60)
    before = read(broker)
    assert len(before) < ROUNDS * KEYS / 3
    assert {key: value for _, key, value in before} == expected
    assert [offset for offset, _, _ in before] == sorted({offset for offset, _, _ in before})
    expected |= fill(broker, 3, codec)
    broker.kill()
    broker.start()
    assert {key: value for _, key, value in read(broker)} == expected
    assert not list(directory.glob("*.swap"))
    _check_files(directory)


def test_a_record_without_a_key_is_refused(broker: BrokerProcess) -> None:
    create(broker)
    refused: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert [error.code() for error in refused] == [confluent_kafka.KafkaError.INVALID_RECORD]


def _check_files(directory: Path) -> None:
    """Every file is sound, as far as ``qbus dump-log`` sees."""
    for path in sorted(directory.glob("*.log")):
        done = subprocess.run(
            [sys.executable, "-m", "qbus", "dump-log", "--problems", "--gaps", str(path)],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
