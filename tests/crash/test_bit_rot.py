"""A flipped bit in a segment: found, reported, never served."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.broker_process import BrokerProcess

from .test_sigkill import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

_RECORDS = 200


def fill(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 10, "linger.ms": 50}
    )
    for number in range(_RECORDS):
        producer.produce(topic, b"value-%06d" % number, partition=0)
    assert producer.flush(30) == 0


def read_without_checking(bootstrap: str, topic: str) -> tuple[list[bytes], list[KafkaError]]:
    """What a consumer is given that does not look at checksums itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rot",
            "enable.partition.eof": True,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    errors: list[KafkaError] = []
    for _ in range(_RECORDS * 4):
        message = consumer.poll(3)
        if message is None:
            break
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            values.append(value)
            continue
        errors.append(error)
        break
    consumer.close()
    return values, errors


@pytest.mark.parametrize("part", ["header", "records", "tail"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_flipped_bit_is_never_served(tmp_path: Path, part: str, stop: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with BrokerProcess(tmp_path) as broker:
        fill(broker.bootstrap, "rot")
        fill(broker.bootstrap, "sound")
        if stop == "clean":
            broker.stop()
        else:
            broker.kill()
        segment = tmp_path / "rot-0" / f"{0:020d}.log"
        data = bytearray(segment.read_bytes())
        places = {
            "header": range(17, 61),
            "records": range(100, len(data) // 2),
            "tail": range(len(data) - 40, len(data)),
        }
        position = random.Random(seed).choice(places[part])
        data[position] ^= 1 << random.Random(seed).randrange(8)
        segment.write_bytes(data)
        broker.start()

        values, _ = read_without_checking(broker.bootstrap, "rot")
        expected = [b"value-%06d" % number for number in range(_RECORDS)]
        assert values == expected[: len(values)], "what is served is what was stored"
        assert len(values) < _RECORDS, "the damaged batch is not served"
        assert "rot-0" in broker.log_text(), "the damage is reported"

        values, errors = read_without_checking(broker.bootstrap, "sound")
        assert values == expected, "others are not touched"
        assert [error.code() for error in errors] == [KafkaError._PARTITION_EOF]
