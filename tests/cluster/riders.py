"""Clients as their users run them, with their own default retries, through whatever happens.

Each sends numbered values with ``acks=all``, idempotently, and consumes them in a group. They run
in a process of their own, ``python -m tests.cluster.riders BOOTSTRAP TOPICS``: their libraries may
leave behind what they like.
"""

import asyncio
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

import qbus

from .riding import Progress

_PAUSE = 0.01  # seconds between two records
_POLL = 0.2
_GIVES_UP = 150.0


class Rider(ABC):
    """A producer and a consumer, each in a thread; what they are told of errors is remembered."""

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
        """The library's."""
        return type(self).__name__

    def start(self) -> None:
        """Send and read from now on."""
        for thread in self._threads:
            thread.start()

    def stop_sending(self) -> None:
        """Send no more, and wait for what is under way."""
        self._stop_sending.set()
        self._threads[0].join(_GIVES_UP)
        assert not self._threads[0].is_alive(), f"{self.name} does not end to send"

    def stop(self) -> None:
        """Read no more."""
        self._stop_sending.set()
        self._stop_reading.set()
        for thread in self._threads:
            thread.join(_GIVES_UP)
            assert not thread.is_alive(), f"{self.name} does not end"

    def progress(self) -> Progress:
        """How far it is."""
        return Progress(self.name, self.sent, self.delivered, len(self.seen), list(self.errors))

    def told(self, error: BaseException | object | None) -> None:
        """A record is stored, or is not."""
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(f"{self.name}: {error!r}")

    def saw(self, value: bytes) -> None:
        """The consumer was handed a value."""
        self.seen.add(value)

    def values(self) -> Iterator[bytes]:
        """What to send, until it is enough."""
        for number in count():
            if self._stop_sending.wait(_PAUSE):
                return
            self.sent = number + 1
            yield b"%d" % number

    @property
    def is_reading(self) -> bool:
        """Whether to go on reading."""
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


class Confluent(Rider):
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


class KafkaPython(Rider):
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
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.topic,
            auto_offset_reset="earliest",
        )
        while self.is_reading:
            for records in consumer.poll(_POLL * 1000).values():
                for record in records:
                    self.saw(record.value)
        consumer.close()


class Aiokafka(Rider):
    """aiokafka, in an event loop for each thread."""

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
            # While it closes it looks for no coordinator: it would ask the one of before for ever.
            await consumer.commit()


class Sdk(Rider):
    """Our own."""

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


RIDERS: tuple[type[Rider], ...] = (Confluent, KafkaPython, Aiokafka, Sdk)


def main() -> None:
    """Let all ride, on the topics that are given by their names; obey what standard input says."""
    bootstrap, topics = sys.argv[1], json.loads(sys.argv[2])
    kinds = {kind.__name__: kind for kind in RIDERS}
    riders = [kinds[name](bootstrap, topic) for name, topic in topics.items()]
    for rider in riders:
        rider.start()
    for word in sys.stdin:
        for rider in riders:
            if word.strip() == "stop sending":
                rider.stop_sending()
            elif word.strip() == "stop":
                rider.stop()
        print(json.dumps([asdict(rider.progress()) for rider in riders]), flush=True)


if __name__ == "__main__":
    main()
