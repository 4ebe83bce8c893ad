"""Delayed records from an idempotent producer nobody here wrote, read back and audited."""

import threading
import time
from collections import Counter
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 3


def create_topic(bootstrap: str, topic: str, replicas: int, **config: str) -> None:
    """Create a topic with delays."""
    stated = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, PARTITIONS, replicas, config={"qbus.delay.enable": "true", **stated})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(60)


class DelayedLoad:
    """Numbered records, sent for a while by an idempotent producer, each due some seconds later."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.due: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.failures: Counter[str] = Counter()
        self._topic = topic
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 65_536,  # below any segment here, however long a broker was away
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            with suppress(BufferError):  # the queue is full while the broker is away
                for _ in range(50):
                    self._send(number)
                    number += 1
            self._producer.poll(0.02)

    def _send(self, number: int) -> None:
        due = round(time.time() * 1000) + 1000 + number * 37 % 5000
        self.due[number] = due
        header: list[tuple[str, str | bytes | None]] = [("qbus-deliver-at", str(due))]
        self._producer.produce(
            self._topic,
            b"%d" % number,
            headers=header if number % 10 else None,
            partition=number % PARTITIONS,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[f"partition {message.partition()}: {error}"] += 1
        else:
            self.acknowledged.add(int(message.value() or b""))

    def finish(self) -> None:
        """Send no more; wait for what was sent."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


class Reader:
    """Reads everything, and when it came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.came: dict[int, list[int]] = {}
        # Of what was held back; what came late, because it was sent again, is visible at once.
        self.order: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            number = int(message.value() or b"")
            self.came.setdefault(number, []).append(round(time.time() * 1000))
            partition = message.partition()
            assert partition is not None
            if "qbus-delayed-offset" in dict(message.headers() or ()):
                self.order[partition].append(message.timestamp()[1])

    def lag(self) -> list[int]:
        """How far the reader is behind, by partition."""
        behind = []
        for number in range(PARTITIONS):
            partition = TopicPartition(self._topic, number)
            _, end = self._consumer.get_watermark_offsets(partition, timeout=10)
            (position,) = self._consumer.position([partition])
            behind.append(end - position.offset)
        return behind

    def stop(self) -> None:
        """Read no more."""
        self._over.set()
        self._thread.join()

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def finish(load: DelayedLoad, reader: Reader) -> None:
    """Wait until all has come, and fail unless each did once, none early, in order, lag 0."""
    load.finish()
    assert not load.failures, load.failures
    deadline = time.monotonic() + 60
    while len(reader.came) < len(load.acknowledged) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)  # for what should not come
    reader.stop()
    lag = reader.lag()
    reader.close()
    audit(load, reader)
    assert lag == [0] * PARTITIONS


def audit(load: DelayedLoad, reader: Reader) -> None:
    lost = load.acknowledged - reader.came.keys()
    assert not lost, f"lost: {sorted(lost)[:10]} of {len(lost)}"
    twice = [number for number, times in reader.came.items() if len(times) > 1]
    assert not twice, f"twice: {sorted(twice)[:10]} of {len(twice)}"
    delayed = [number for number in reader.came if number % 10]
    early = [number for number in delayed if reader.came[number][0] < load.due[number]]
    assert not early, f"early: {early[:10]} of {len(early)}"
    for partition, times in reader.order.items():
        assert times == sorted(times), f"partition {partition} is out of order"
    assert len(delayed) > 1000
