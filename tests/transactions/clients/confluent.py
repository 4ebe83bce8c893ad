"""confluent-kafka: librdkafka.

While brokers die it may wait for ever in ``send_offsets_to_transaction``, for a coordinator whose
handle it has given up (librdkafka 2.16): it suits runs in which brokers come back at once.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import confluent_kafka as ck

from ..history import Send
from .base import GIVES_UP_S, Client, Failed, Records

_QUICK = {
    "socket.timeout.ms": 10_000,
    "log_level": 0,  # brokers that cannot be reached are the purpose
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 1_000,
    # If it began anew when no broker answers, it could wait for an old coordinator for ever.
    "metadata.recovery.strategy": "none",
}
_OPERATION_S = 30.0
_MOST = 20


class ConfluentClient(Client):
    """A producer and a consumer of librdkafka."""

    _producer: Any = None
    _consumer: Any = None

    def open(self) -> None:
        self.close()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "transaction.timeout.ms": self._timeout_ms,
                "linger.ms": 0,
                **_QUICK,
            }
        )
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                **_QUICK,
            }
        )
        _repeated(lambda: self._producer.init_transactions(_OPERATION_S))
        self.rewind()

    def rewind(self) -> None:
        asked = [ck.TopicPartition(*place) for place in self._places]
        known = _repeated(lambda: self._consumer.committed(asked, _OPERATION_S))
        for place in known:
            if place.error is not None:
                raise Failed(str(place.error))
            place.offset = max(place.offset, 0)
        self._consumer.assign(known)

    def begin(self) -> None:
        with _failing():
            self._producer.begin_transaction()

    def send(self, send: Send) -> None:
        def told(error: object, message: Any) -> None:
            if error is None and message.offset() >= 0:
                send.offset = message.offset()

        with _failing():
            self._producer.produce(
                self._topic, send.value, partition=send.partition, on_delivery=told
            )

    def poll(self, seconds: float) -> dict[int, Records]:
        found: defaultdict[int, Records] = defaultdict(list)
        for message in self._consumer.consume(_MOST, seconds):
            if message.error() is not None:
                raise Failed(str(message.error()))
            found[message.partition()].append((message.offset(), message.value().decode()))
        return dict(found)

    def add_positions(self) -> None:
        positions = self._consumer.position([ck.TopicPartition(*place) for place in self._places])
        known = [place for place in positions if place.offset >= 0]
        if known:
            metadata = self._consumer.consumer_group_metadata()
            with _failing():
                self._producer.send_offsets_to_transaction(known, metadata, _OPERATION_S)

    def commit(self) -> None:
        _repeated(lambda: self._producer.commit_transaction(_OPERATION_S))

    def abort(self) -> None:
        _repeated(lambda: self._producer.abort_transaction(_OPERATION_S))

    def close(self) -> None:
        if self._producer is not None:
            with suppress(ck.KafkaException):
                self._producer.purge()
            self._producer = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except ck.KafkaException as error:
        raise Failed(str(error)) from error


def _repeated(operation: Callable[[], Any]) -> Any:
    """Carry out what may be repeated after some errors, as librdkafka says itself."""
    deadline = time.monotonic() + GIVES_UP_S
    while True:
        try:
            return operation()
        except ck.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise Failed(str(error)) from error
            time.sleep(0.05)
