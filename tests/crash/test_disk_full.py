"""A full disk: what is stored is read, what is new is refused for now, and space ends it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.broker_process import BrokerProcess
from tests.support.small_disk import CannotMountError, small_disk

from .audit import Acknowledged, audit, read_all
from .test_sigkill import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

_SIZE = "48m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    try:
        with small_disk(tmp_path / "disk", _SIZE) as directory:
            yield directory
    except CannotMountError as reason:
        pytest.skip(str(reason))


def produce_until_refused(bootstrap: str, acknowledged: Acknowledged) -> list[KafkaError]:
    """Fill the disk; the errors of the records that found no room."""
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: object) -> None:
        if error is None:
            acknowledged.on_delivery(error, message)  # type: ignore[arg-type]
        else:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "delivery.timeout.ms": 4000,
            "max.in.flight": 1,
            "batch.size": 200_000,
        }
    )
    number = 0
    while not errors:
        number += 1
        value = b"%020d" % number + bytes(100_000)
        producer.produce("full", value, partition=0, on_delivery=on_delivery)
        producer.poll(0.001)
    producer.flush(30)
    return errors


def test_reads_go_on_and_writes_resume_when_space_returns(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(os.urandom(16 << 20))
    with BrokerProcess(disk / "data") as broker:
        create_topic(broker.bootstrap, "full", 1, **{"segment.bytes": "8388608"})
        acknowledged = Acknowledged()
        refused = produce_until_refused(broker.bootstrap, acknowledged)
        assert all(error.code() in _PASSING for error in refused), refused[0]
        assert acknowledged.count > 50
        stored = read_all(broker.bootstrap, "full", 1)
        audit_values(acknowledged, stored)

        ballast.unlink()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        producer.produce(
            "full", b"%020d" % 10**9, partition=0, on_delivery=acknowledged.on_delivery
        )
        assert producer.flush(30) == 0
        assert not acknowledged.failures
        broker.restart()
        audit_values(acknowledged, read_all(broker.bootstrap, "full", 1))


# What librdkafka reports when it gave up trying again.
_PASSING = {KafkaError._MSG_TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR}


def audit_values(acknowledged: Acknowledged, stored: dict[int, list[tuple[int, bytes]]]) -> None:
    """Compare by the number that each value starts with."""
    said = {
        partition: {offset: value[:20] for offset, value in values.items()}
        for partition, values in acknowledged.offsets.items()
    }
    found = {
        partition: [(offset, value[:20]) for offset, value in records]
        for partition, records in stored.items()
    }
    audit(Acknowledged(said), found)
