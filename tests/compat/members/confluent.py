"""A group member by confluent-kafka: ``BOOTSTRAP TOPIC GROUP``, and settings as ``NAME=VALUE``."""

import contextlib
import sys

import confluent_kafka as ck

from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Stopping, Teller


def main(bootstrap: str, topic: str, group: str, *settings: str) -> None:
    stopping, tell = Stopping(), Teller()
    given = dict(pair.split("=", 1) for pair in settings)
    # With the protocol of KIP-848 these two are the broker's.
    session = {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            **({} if given.get("group.protocol") == "consumer" else session),
            **given,
        }
    )
    consumer.subscribe([topic])
    while not stopping:
        message = consumer.poll(0.05)
        tell.assigned((one.topic, one.partition) for one in consumer.assignment())
        if message is None or message.error():
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        # A commit that a rebalance refuses is a record that its next owner reads again.
        with contextlib.suppress(ck.KafkaException):
            consumer.commit(message=message, asynchronous=False)
            tell.consumed(partition, offset)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
