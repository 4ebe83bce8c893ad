"""kafka-python: the protocol in pure Python, with threads."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from .base import PATIENCE, Place, Read, Refused

with warnings.catch_warnings():
    # It loads its message schemas with functions that Python has deprecated.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

_FENCED = (InvalidProducerEpochError, ProducerFencedError)


class KafkaPythonProducer:
    """A transactional producer of kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=PATIENCE * 1000,
        )
        _ask(self._producer.init_transactions)

    def begin(self) -> None:
        _ask(self._producer.begin_transaction)

    def send(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        sent = [
            _ask(self._producer.send, topic, value.encode(), partition=partition)
            for value in values
        ]
        self._producer.flush(PATIENCE)
        for one in sent:
            _ask(one.get, PATIENCE)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        places = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        _ask(self._producer.send_offsets_to_transaction, places, group)

    def commit(self) -> None:
        _ask(self._producer.commit_transaction)

    def abort(self) -> None:
        _ask(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonTransactions:
    """Makes producers and consumers of kafka-python."""

    name = "kafka-python"
    has_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here."""
        return None

    def close(self) -> None:
        """Nothing outlives an operation."""

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> KafkaPythonProducer:
        return KafkaPythonProducer(self._bootstrap, transactional_id, timeout_ms)

    def read(
        self, topic: str, count: int, *, partition: int = 0, committed: bool = True
    ) -> list[Read]:
        place = TopicPartition(topic, partition)
        with closing(self._consumer(None, committed)) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            found: list[Read] = []
            for polled in _polls(consumer):
                found += [Read(one.offset, one.value.decode()) for one in polled.get(place, ())]
                if len(found) >= count:
                    break
            return found[:count]

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=f"copy-{group}"
        )
        with closing(self._consumer(group)) as consumer, closing(producer):
            producer.init_transactions()
            consumer.subscribe([source])
            done = 0
            for polled in _polls(consumer):
                if polled:
                    done += _copy_polled(consumer, producer, target, polled)
                if done >= count:
                    break

    def _consumer(self, group: str | None, committed: bool = True) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
        )


def _polls(consumer: Any) -> Iterator[dict[Any, list[Any]]]:
    for _ in range(int(PATIENCE / 0.2)):
        yield consumer.poll(200)
    raise AssertionError("the records did not come")


def _copy_polled(
    consumer: Any, producer: Any, target: str, polled: Mapping[Any, Sequence[Any]]
) -> int:
    done = 0
    producer.begin_transaction()
    for place, records in polled.items():
        for record in records:
            producer.send(target, record.value, partition=place.partition)
            done += 1
    behind = {
        place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
        for place, records in polled.items()
    }
    producer.send_offsets_to_transaction(behind, consumer.group_metadata())
    producer.commit_transaction()
    return done


def _ask(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return operation(*arguments, **options)
    except KafkaError as error:
        raise Refused(repr(error), is_fenced=isinstance(error, _FENCED)) from error
