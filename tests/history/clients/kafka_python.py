"""kafka-python."""

import warnings
from collections.abc import Iterable
from typing import Any

from ..history import Outcome
from .base import GIVES_UP_MS, POLL_SECONDS, ConsumerClient, ProducerClient, Records, Told

with warnings.catch_warnings():
    # It loads its message schemas with functions that Python has deprecated.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import MessageSizeTooLargeError


class KafkaPythonProducer(ProducerClient):
    """Looks for new leaders every two seconds."""

    def __init__(self, bootstrap: str, topic: str, *, is_idempotent: bool) -> None:
        self._topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            enable_idempotence=is_idempotent,
            acks="all",
            linger_ms=5,
            delivery_timeout_ms=GIVES_UP_MS,
            request_timeout_ms=5_000,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=2_000,
            max_block_ms=GIVES_UP_MS,
        )

    def send(self, partition: int, value: bytes, told: Told) -> None:
        def stored(metadata: Any) -> None:
            told(Outcome.OK, None if metadata.offset < 0 else metadata.offset, "")

        def failed(error: BaseException) -> None:
            is_refused = isinstance(error, MessageSizeTooLargeError)
            told(Outcome.FAILED if is_refused else Outcome.UNKNOWN, None, repr(error))

        future = self._producer.send(self._topic, value, partition=partition)
        future.add_callback(stored)
        future.add_errback(failed)

    def close(self, timeout: float) -> None:
        self._producer.close(timeout)


class KafkaPythonConsumer(ConsumerClient):
    """Looks for new leaders every two seconds."""

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            auto_offset_reset="none",
            request_timeout_ms=10_000,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=2_000,
        )
        places = [TopicPartition(topic, one) for one in partitions]
        self._consumer.assign(places)
        for place in places:
            self._consumer.seek(place, 0)

    def poll(self) -> dict[int, Records]:
        polled: dict[Any, list[Any]] = self._consumer.poll(POLL_SECONDS * 1000)
        return {
            place.partition: [(record.offset, record.value) for record in records]
            for place, records in polled.items()
        }

    def close(self) -> None:
        self._consumer.close()
