"""Our own SDK."""

from collections.abc import Iterable
from contextlib import suppress

import qbus
from qbus.errors import ApiError, ErrorCode, QbusError

from ..history import Outcome
from .base import GIVES_UP_MS, POLL_SECONDS, ConsumerClient, ProducerClient, Records, Told


class QbusProducer(ProducerClient):
    """Its blocking face."""

    def __init__(self, bootstrap: str, topic: str, *, is_idempotent: bool) -> None:
        self._topic = topic
        self._producer = qbus.Producer(
            bootstrap,
            idempotent=is_idempotent,
            delivery_timeout_ms=GIVES_UP_MS,
            request_timeout_ms=5_000,
        )

    def send(self, partition: int, value: bytes, told: Told) -> None:
        def on_delivery(delivery: qbus.Delivery) -> None:
            error = delivery.exception()
            if error is None:
                told(Outcome.OK, delivery.offset, "")
            else:
                is_refused = (
                    isinstance(error, ApiError) and error.code is ErrorCode.MESSAGE_TOO_LARGE
                )
                told(Outcome.FAILED if is_refused else Outcome.UNKNOWN, None, repr(error))

        self._producer.send(self._topic, value, partition=partition, on_delivery=on_delivery)

    def close(self, timeout: float) -> None:
        self._producer.close(timeout)


class QbusConsumer(ConsumerClient):
    """Its blocking face."""

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._consumer = qbus.Consumer(
            bootstrap, offset_reset="none", metadata_max_age_ms=2_000, request_timeout_ms=10_000
        )
        self._consumer.assign([(topic, one, 0) for one in partitions])

    def poll(self) -> dict[int, Records]:
        return {
            batch.partition: [(record.offset, bytes(record.value or b"")) for record in batch]
            for batch in self._consumer.poll(POLL_SECONDS)
        }

    def close(self) -> None:
        with suppress(QbusError):
            self._consumer.close()
