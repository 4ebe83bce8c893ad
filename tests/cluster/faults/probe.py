"""Checks that a cluster accepts records."""

import time
from collections.abc import Iterable
from itertools import count

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.history.history import History, Outcome, Produce

_numbers = count()
_QUICK = {
    "log_level": 2,  # unreachable brokers are the purpose of these tests
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 500,
}


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic that loses nothing and stays available without one of its replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUICK})
    config = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
    admin.create_topics([NewTopic(topic, partitions, 3, config=config)])[topic].result(60)


def send_to_all(bootstrap: str, topic: str, partitions: Iterable[int], within: float) -> History:
    """Send a record to every partition, idempotently; fail unless all are accepted in time."""
    name = f"probe-{next(_numbers)}"
    history = History()
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "delivery.timeout.ms": int(within * 1000),
            "request.timeout.ms": 3_000,
            "linger.ms": 0,
            "retry.backoff.ms": 50,
            **_QUICK,
        }
    )
    for partition in partitions:
        value = f"{name}-{partition}".encode()
        record = Produce(name, partition, value, time.monotonic())
        history.produces.append(record)

        def told(
            error: ck.KafkaError | None, message: ck.Message, record: Produce = record
        ) -> None:
            record.ended = time.monotonic()
            record.error = str(error or "")
            if error is None:
                offset = message.offset()
                assert offset is not None
                record.outcome, record.offset = Outcome.OK, offset if offset >= 0 else None

        producer.produce(topic, value, partition=partition, on_delivery=told)
    producer.flush(within + 5)
    waiting = [str(sent) for sent in history.produces if sent.outcome is not Outcome.OK]
    assert not waiting, f"not accepted within {within:g} s: {waiting}"
    return history
