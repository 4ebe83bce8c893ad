"""Clients as users run them, with their libraries' default retries.

Each workload sends numbered values with ``acks=all``, idempotently, and consumes them in a group.
All run in a separate process, ``python -m tests.cluster.workloads BOOTSTRAP TOPICS``, because the
libraries may leave threads and sockets behind.
"""

import asyncio
import contextlib
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError

import qbus

from .workload_process import Progress

_PAUSE = 0.01  # seconds between two records
_POLL = 0.2
_GIVES_UP = 150.0


class Workload(ABC):
    """A producer and a consumer, each in a thread; ``errors`` collects what they report."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.errors: list[str] = []
        self.sent = 0
        self.delivered = 0
        self.seen: set[bytes] = set()
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._send, self._read)
        ]

    @property
    def name(self) -> str:
        """The name of the library."""
        return type(self).__name__

    def start(self) -> None:
        """Start to send and to read."""
        for thread in self._threads:
            thread.start()

    def stop_sending(self) -> None:
        """Stop sending, and wait for the records in flight."""
        self._stop_sending.set()
        self._threads[0].join(_GIVES_UP)
        assert not self._threads[0].is_alive(), f"{self.name} does not stop sending"

    def stop(self) -> None:
        """Stop sending and reading."""
        self._stop_sending.set()
        self._stop_reading.set()
        for thread in self._threads:
            thread.join(_GIVES_UP)
            assert not thread.is_alive(), f"{self.name} does not stop"

    def progress(self) -> Progress:
        """The counts so far."""
        return Progress(self.name, self.sent, self.delivered, len(self.seen), list(self.errors))

    def told(self, error: BaseException | object | None) -> None:
        """Count a delivered record (``error`` is None), or note the error."""
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(f"{self.name}: {error!r}")

    def saw(self, value: bytes) -> None:
        """Note a value that the consumer returned."""
        self.seen.add(value)

    def values(self) -> Iterator[bytes]:
        """Yield the values to send, until sending stops."""
        for number in count():
            if self._stop_sending.wait(_PAUSE):
                return
            self.sent = number + 1
            yield b"%d" % number

    @property
    def is_reading(self) -> bool:
        """Whether to continue reading."""
        return not self._stop_reading.is_set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.told(error)

    @abstractmethod
    def _send(self) -> None: ...

    @abstractmethod
    def _read(self) -> None: ...


class Confluent(Workload):
    """librdkafka."""

    def _send(self) -> None:
        producer = ck.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 2}
        )
        for value in self.values():
            producer.produce(self.topic, value, on_delivery=lambda error, _: self.told(error))
            producer.poll(0)
        producer.flush(_GIVES_UP)

    def _read(self) -> None:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        consumer.subscribe([self.topic])
        while self.is_reading:
            message = consumer.poll(_POLL)
            if message is not None and message.error() is not None:
                self.told(message.error())
            elif message is not None:
                self.saw(message.value() or b"")
        consumer.close()


class KafkaPython(Workload):
    """kafka-python."""

    def _send(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","), acks="all", enable_idempotence=True
        )
        for value in self.values():
            future = producer.send(self.topic, value)
            future.add_callback(lambda _: self.told(None))
            future.add_errback(self.told)
        producer.close(_GIVES_UP)

    def _read(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.topic,
            auto_offset_reset="earliest",
        )
        # Version 3.0 joins before it knows the topic, assigns itself nothing, and joins again; when
        # a poll ends between the two answers of that, its assignment is never applied.
        while not consumer.partitions_for_topic(self.topic):
            pass
        consumer.subscribe([self.topic])
        while self.is_reading:
            # It raises where it asked a broker for metadata that has just died: poll again.
            with contextlib.suppress(KafkaConnectionError):
                for records in consumer.poll(_POLL * 1000).values():
                    for record in records:
                        self.saw(record.value)
        consumer.close()


class Aiokafka(Workload):
    """aiokafka, with an event loop in each thread."""

    def _send(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        def told(future: "asyncio.Future[Any]") -> None:
            self.told(future.exception())

        values = self.values()
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            while (value := await asyncio.to_thread(next, values, None)) is not None:
                (await producer.send(self.topic, value)).add_done_callback(told)

    def _read(self) -> None:
        asyncio.run(self._read_all())

    async def _read_all(self) -> None:
        async with AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.topic,
            auto_offset_reset="earliest",
        ) as consumer:
            while self.is_reading:
                for records in (await consumer.getmany(timeout_ms=int(_POLL * 1000))).values():
                    for record in records:
                        self.saw(record.value or b"")
            # On closing it does not look for a new coordinator, and would ask the old one for ever.
            await consumer.commit()


class Sdk(Workload):
    """Qbus's own."""

    def _send(self) -> None:
        with qbus.Producer(self.bootstrap) as producer:
            for value in self.values():
                producer.send(
                    self.topic, value, on_delivery=lambda delivery: self.told(delivery.exception())
                )

    def _read(self) -> None:
        with qbus.Consumer(self.bootstrap, group=self.topic, offset_reset="earliest") as consumer:
            consumer.subscribe([self.topic])
            while self.is_reading:
                for batch in consumer.poll(_POLL):
                    for record in batch:
                        self.saw(bytes(record.value or b""))


WORKLOADS: tuple[type[Workload], ...] = (Confluent, KafkaPython, Aiokafka, Sdk)


def main() -> None:
    """Run all workloads on the topics given by library; take commands from standard input."""
    bootstrap, topics = sys.argv[1], json.loads(sys.argv[2])
    kinds = {kind.__name__: kind for kind in WORKLOADS}
    workloads = [kinds[name](bootstrap, topic) for name, topic in topics.items()]
    for workload in workloads:
        workload.start()
    for word in sys.stdin:
        for workload in workloads:
            if word.strip() == "stop sending":
                workload.stop_sending()
            elif word.strip() == "stop":
                workload.stop()
        print(json.dumps([asdict(workload.progress()) for workload in workloads]), flush=True)


if __name__ == "__main__":
    main()
