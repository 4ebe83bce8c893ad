"""A load that knows what was acknowledged, and the audit of what the log holds in the end."""

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

_PATIENCE_S = 10.0
_MOST_WAITING = 10_000  # more than this cannot be delivered in time by a broker that is hardly up


@dataclass
class Acknowledged:
    """What the broker said it stored: partition -> offset -> value, in the order of the answers."""

    offsets: dict[int, dict[int, bytes]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.offsets.setdefault(partition, {})[offset] = value

    @property
    def count(self) -> int:
        return sum(len(values) for values in list(self.offsets.values()))


class Load:
    """An idempotent librdkafka producer that keeps ``partitions`` busy until told to stop."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, first: int = 0, **options: object
    ) -> None:
        """``first`` is the first of the ``partitions`` that follow one another."""
        self.acknowledged = Acknowledged()
        self.sent = 0
        self._topic = topic
        self._partitions = range(first, first + partitions)
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 200,
                "queue.buffering.max.messages": _MOST_WAITING,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                **options,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> Acknowledged:
        """Send no more, wait for every answer, and return what was acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0, "every record is answered in the end"
        return self.acknowledged

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(BufferError):  # the queue is full while the broker is away
                self._send(50)
            self._producer.poll(0)
            self._stop.wait(0.005)

    def _send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic,
                b"%d" % self.sent,
                partition=self._partitions[self.sent % len(self._partitions)],
                on_delivery=self.acknowledged.on_delivery,
            )
            self.sent += 1


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of the topic, by partition: offset and value, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(partitions)}
    open_ends = set(range(partitions))
    deadline = time.monotonic() + _PATIENCE_S
    while open_ends:
        messages = consumer.consume(1_000, 0.2)
        if messages:
            deadline = time.monotonic() + _PATIENCE_S
        assert time.monotonic() < deadline, f"partitions {open_ends} have no end"
        for message in messages:
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, str(error)
                open_ends.discard(partition)
                continue
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found[partition].append((offset, value))
    consumer.close()
    return found


def audit(acknowledged: Acknowledged, found: dict[int, list[tuple[int, bytes]]]) -> None:
    """Fail on a lost, duplicated, reordered or moved record, and on a gap."""
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(len(offsets))), f"partition {partition} is not dense"
        values = [int(value) for _, value in records]
        twice = [value for value, times in Counter(values).items() if times > 1]
        assert not twice, f"partition {partition} holds {twice[:5]} more than once"
        assert values == sorted(values), f"partition {partition} is out of order"
        by_offset = dict(records)
        for offset, value in acknowledged.offsets.get(partition, {}).items():
            assert by_offset.get(offset) == value, (
                f"partition {partition}: {value!r} was acknowledged at {offset}, "
                f"which holds {by_offset.get(offset)!r} of {len(records)} records"
            )
