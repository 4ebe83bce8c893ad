"""A transactional client to be recorded: librdkafka, by confluent-kafka."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka as ck

from .history import Send

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
_OFFSETS_S = 8.0
_MOST = 20


class Client:
    """A producer with a transactional id, and a consumer whose group has that name.

    The consumer is assigned all partitions; its positions are committed with transactions. Errors
    are ck.KafkaException. ``open`` makes both anew: the transaction of their predecessors is ended
    by that, and the positions are those that are committed.
    """

    def __init__(
        self, bootstrap: str, name: str, topic: str, partitions: Iterable[int], timeout_ms: int
    ) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._places = [(topic, partition) for partition in partitions]
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._producer: Any = None
        self._consumer: Any = None

    def open(self) -> None:
        """Take the transactional id, and go to the committed positions."""
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
        """Go to the committed positions, or to the start where there is none."""
        asked = [ck.TopicPartition(*place) for place in self._places]
        known = _repeated(lambda: self._consumer.committed(asked, _OPERATION_S))
        for place in known:
            if place.error is not None:
                raise ck.KafkaException(place.error)
            place.offset = max(place.offset, 0)
        self._consumer.assign(known)

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, send: Send) -> None:
        """Send a record; its offset is noted when it is told."""

        def told(error: object, message: Any) -> None:
            if error is None and message.offset() >= 0:
                send.offset = message.offset()

        self._producer.produce(self._topic, send.value, partition=send.partition, on_delivery=told)

    def poll(self, seconds: float) -> dict[int, list[tuple[int, str]]]:
        """What came within a time, by partition."""
        found: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        for message in self._consumer.consume(_MOST, seconds):
            if message.error() is not None:
                raise ck.KafkaException(message.error())
            found[message.partition()].append((message.offset(), message.value().decode()))
        return dict(found)

    def add_positions(self) -> None:
        """Have the consumer's positions committed with the transaction."""
        positions = self._consumer.position([ck.TopicPartition(*place) for place in self._places])
        known = [place for place in positions if place.offset >= 0]
        if known:
            metadata = self._consumer.consumer_group_metadata()
            # Not repeated: librdkafka may wait for a coordinator's handle that it has given up.
            self._producer.send_offsets_to_transaction(known, metadata, _OFFSETS_S)

    def commit(self) -> None:
        """Commit the transaction."""
        _repeated(lambda: self._producer.commit_transaction(_OPERATION_S))

    def abort(self) -> None:
        """Abort the transaction."""
        _repeated(lambda: self._producer.abort_transaction(_OPERATION_S))

    def close(self) -> None:
        """Leave without ending the transaction."""
        if self._producer is not None:
            with suppress(ck.KafkaException):
                self._producer.purge()
            self._producer = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _repeated(operation: Callable[[], Any]) -> Any:
    """Carry out what may be repeated after some errors, as librdkafka says itself."""
    deadline = time.monotonic() + 2 * _OPERATION_S
    while True:
        try:
            return operation()
        except ck.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
