"""confluent-kafka: librdkafka from Python."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck

from .base import PATIENCE, Place, Read, Refused

_FENCED = {
    ck.KafkaError._FENCED,
    ck.KafkaError.INVALID_PRODUCER_EPOCH,
    ck.KafkaError.PRODUCER_FENCED,
}


class ConfluentProducer:
    """A transactional producer of librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 2,
            }
        )
        self._ask(self._producer.init_transactions, PATIENCE)

    def begin(self) -> None:
        self._ask(self._producer.begin_transaction)

    def send(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        errors: list[Any] = []

        def told(error: Any, _message: object) -> None:
            if error is not None:
                errors.append(error)

        for value in values:
            self._ask(self._producer.produce, topic, value, partition=partition, on_delivery=told)
        self._ask(self._producer.flush, PATIENCE)
        if errors:
            raise _refused(errors[0])

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        # The metadata of a consumer that has joined no group yet: any offsets are taken.
        consumer = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        places = [ck.TopicPartition(*place, offset) for place, offset in offsets.items()]
        metadata = consumer.consumer_group_metadata()
        try:
            self._ask(self._producer.send_offsets_to_transaction, places, metadata, PATIENCE)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._ask(self._producer.commit_transaction, PATIENCE)

    def abort(self) -> None:
        self._ask(self._producer.abort_transaction, PATIENCE)

    def close(self) -> None:
        self._producer.purge()
        del self._producer

    @staticmethod
    def _ask(operation: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            operation(*arguments, **options)
        except ck.KafkaException as error:
            raise _refused(error.args[0]) from error


class ConfluentTransactions:
    """Makes producers and consumers of librdkafka."""

    name = "confluent-kafka"
    has_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here."""
        return None

    def close(self) -> None:
        """Nothing outlives an operation."""

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> ConfluentProducer:
        return ConfluentProducer(self._bootstrap, transactional_id, timeout_ms)

    def read(
        self, topic: str, count: int, *, partition: int = 0, committed: bool = True
    ) -> list[Read]:
        consumer = self._consumer("unused", committed)
        consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)])
        try:
            return [
                Read(message.offset(), message.value().decode())
                for message in _messages(consumer, count)
            ]
        finally:
            consumer.close()

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        consumer = self._consumer(group)
        consumer.subscribe([source])
        producer = ck.Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": f"copy-{group}"}
        )
        producer.init_transactions(PATIENCE)
        done = 0
        try:
            while done < count:
                messages = _messages(consumer, 1) + consumer.consume(count - done - 1, 0.1)
                producer.begin_transaction()
                for message in messages:
                    assert message.error() is None, message.error()
                    producer.produce(target, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(positions, metadata, PATIENCE)
                producer.commit_transaction(PATIENCE)
                done += len(messages)
        finally:
            consumer.close()

    def _consumer(self, group: str, committed: bool = True) -> Any:
        return ck.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )


def _messages(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE)
        assert message is not None, f"{len(found)} of {count} records"
        assert message.error() is None, message.error()
        found.append(message)
    return found


def _refused(error: Any) -> Refused:
    return Refused(str(error), is_fenced=error.code() in _FENCED)
