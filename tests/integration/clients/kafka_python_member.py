"""A member of a group by kafka-python, until SIGTERM: ``BOOTSTRAP TOPIC MODULE ASSIGNOR``."""

import importlib
import signal
import sys

from kafka import KafkaConsumer


def main(bootstrap: str, topic: str, module: str, assignor: str) -> None:
    found = importlib.import_module(f"kafka.coordinator.assignors.{module}")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[getattr(found, assignor)],
    )
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    while not stopping:
        consumer.poll(timeout_ms=50)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
