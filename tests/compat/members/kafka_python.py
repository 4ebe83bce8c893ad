"""A group member by kafka-python: ``BOOTSTRAP TOPIC GROUP``."""

import contextlib
import sys

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Stopping, Teller


def main(bootstrap: str, topic: str, group: str) -> None:
    stopping, tell = Stopping(), Teller()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while not stopping:
        polled = consumer.poll(timeout_ms=50)
        tell.assigned(consumer.assignment())
        if not polled:
            continue
        # A commit that a rebalance refuses is a record that its next owner reads again.
        with contextlib.suppress(KafkaError):
            consumer.commit()
            for records in polled.values():
                for record in records:
                    tell.consumed(record.partition, record.offset)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
