"""confluent-kafka: librdkafka."""

from collections import defaultdict
from collections.abc import Iterable

import confluent_kafka as ck

from ..history import Outcome
from .base import GIVES_UP_MS, POLL_SECONDS, ConsumerClient, ProducerClient, Records, Told

_REFUSALS = {ck.KafkaError.MSG_SIZE_TOO_LARGE, ck.KafkaError._PURGE_QUEUE}


class ConfluentProducer(ProducerClient):
    """Tries again within five seconds, and soon finds new leaders."""

    def __init__(self, bootstrap: str, topic: str, *, is_idempotent: bool) -> None:
        self._topic = topic
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": is_idempotent,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": GIVES_UP_MS,
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 10_000,
                "log_level": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )

    def send(self, partition: int, value: bytes, told: Told) -> None:
        def on_delivery(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is None:
                offset = message.offset()
                told(Outcome.OK, None if offset is None or offset < 0 else offset, "")
            else:
                is_refused = error.code() in _REFUSALS
                told(Outcome.FAILED if is_refused else Outcome.UNKNOWN, None, str(error))

        self._producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)

    def poll(self) -> None:
        self._producer.poll(0)

    def close(self, timeout: float) -> None:
        self._producer.flush(timeout)


class ConfluentConsumer(ConsumerClient):
    """Checks checksums."""

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "history",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "socket.timeout.ms": 10_000,
                "log_level": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._errors: list[ck.KafkaError] = []
        self._consumer.assign([ck.TopicPartition(topic, one, 0) for one in partitions])

    def poll(self) -> dict[int, Records]:
        if self._errors:
            raise ck.KafkaException(self._errors.pop(0))
        found: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for message in self._consumer.consume(1_000, POLL_SECONDS):
            error = message.error()
            if error is not None:
                self._errors.append(error)  # told next time: what came along with it counts
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found[partition].append((offset, message.value() or b""))
        return dict(found)

    def close(self) -> None:
        self._consumer.close()
