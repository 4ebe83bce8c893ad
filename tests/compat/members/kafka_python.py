"""A group member by kafka-python: ``BOOTSTRAP TOPIC GROUP``, and perhaps ``MODULE ASSIGNOR``."""

import contextlib
import sys
from importlib import import_module
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Stopping, Teller


def main(bootstrap: str, topic: str, group: str, module: str = "", assignor: str = "") -> None:
    stopping, tell = Stopping(), Teller()
    options: dict[str, Any] = {}
    if module:
        found = import_module(f"kafka.coordinator.assignors.{module}")
        options["partition_assignment_strategy"] = [getattr(found, assignor)]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        **options,
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
