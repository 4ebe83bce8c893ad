"""Numbered records in a topic that is written all the time, and all of them out of it again."""

import threading
from collections.abc import Mapping

import confluent_kafka as ck

from .local_cluster import PATIENCE
from .waiting import wait_until


class Load(threading.Thread):
    """Produces numbered records with acks=all, one after the other, and remembers what failed."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        pause: float = 0.005,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """``pause``: seconds from one record to the next. ``properties``: how it connects."""
        super().__init__(daemon=True)
        self._topic = topic
        self._pause = pause
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(PATIENCE * 1000),
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 2,
                **(properties or {}),
            }
        )
        self._stopping = threading.Event()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            self._producer.poll(0)
            self._stopping.wait(self._pause)
            number += 1
        self._producer.flush(PATIENCE)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join(2 * PATIENCE)
        assert not self.is_alive()


def read_all(
    bootstrap: str, topic: str, count: int, properties: Mapping[str, str] | None = None
) -> list[int]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            **(properties or {}),
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []

    def enough() -> bool:
        messages = consumer.consume(10_000, 0.2)
        found.extend(int(one.value() or b"") for one in messages if one.error() is None)
        return len(found) >= count

    try:
        wait_until(enough, "all records", PATIENCE)
    finally:
        consumer.close()
    return found
