"""A load of producers and consumers, which record what they see."""

import itertools
import threading
import time
from collections.abc import Sequence
from functools import partial

from tests.support.waiting import wait_until

from .clients import RELAXED, open_consumer, open_producer
from .clients.base import ProducerClient
from .history import History, Outcome, Poll, Produce

_BURST = 10
_OPEN_LIMIT = 1_000
"""Records in flight of one producer; bounds the load while the cluster stands still."""
_GIVES_UP = 150.0
_numbers = itertools.count()


class Load:
    """Clients, each in a thread, from ``start`` to ``finish``; for their names see ``clients``.

    ``rate``: records per second of each producer. ``tag`` makes the values of this process
    unique.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        producers: Sequence[str] = (),
        consumers: Sequence[str] = (),
        *,
        rate: float = 200.0,
        tag: str = "",
    ) -> None:
        self._stop = threading.Event()
        tag = f"{tag}{next(_numbers)}"
        self._loops: list[_Sending | _Reading] = [
            *(
                _Sending(f"{name}-{tag}-{index}", name, bootstrap, topic, partitions, rate)
                for index, name in enumerate(producers)
            ),
            *(
                _Reading(f"{name}-{tag}-{index}", name, bootstrap, topic, partitions)
                for index, name in enumerate(consumers)
            ),
        ]
        self._threads = [
            threading.Thread(target=loop.run, args=(self._stop,), name=loop.name, daemon=True)
            for loop in self._loops
        ]

    def start(self) -> None:
        """Start all clients."""
        for thread in self._threads:
            thread.start()

    def wait_busy(self, timeout: float = 120.0) -> None:
        """Wait until every producer has an acknowledgement and every consumer a record."""
        wait_until(lambda: all(loop.is_busy() for loop in self._loops), "a load that runs", timeout)

    def finish(self) -> History:
        """Stop all clients, wait for outstanding results, and return the history."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_GIVES_UP)
            assert not thread.is_alive(), f"{thread.name} does not stop"
        for loop in self._loops:
            if loop.failure is not None:
                raise loop.failure
        return History.merged(loop.history for loop in self._loops)


class _Sending:
    """One producer, which sends numbered values to the partitions in turn until it is stopped.

    It also stops when its client gives up for good, as librdkafka sometimes does after a long time
    without a leader (also with Apache Kafka): records in flight are then unknown.
    """

    def __init__(
        self, name: str, kind: str, bootstrap: str, topic: str, partitions: int, rate: float
    ) -> None:
        self.name = name
        self.history = History(relaxed={name} if kind.endswith(RELAXED) else set())
        self.failure: Exception | None = None
        self._where = kind, bootstrap, topic
        self._partitions = partitions
        self._pause = _BURST / rate
        self._open = 0
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        try:
            client = open_producer(*self._where)
        except Exception as error:
            self.failure = error
            return
        for step in (partial(self._keep_sending, stop), _close):
            try:
                step(client)
            except Exception as error:
                self.history.errors.append(f"{self.name} gave up: {error!r}")

    def _keep_sending(self, stop: threading.Event, client: ProducerClient) -> None:
        for first in itertools.count(step=_BURST):
            if self._open < _OPEN_LIMIT:
                for number in range(first, first + _BURST):
                    self._send(client, number)
            client.poll()
            if stop.wait(self._pause):
                return

    def is_busy(self) -> bool:
        return self.failure is not None or any(one.ended for one in self.history.produces[:_BURST])

    def _send(self, client: ProducerClient, number: int) -> None:
        value = f"{self.name}-{number:07d}".encode()
        record = Produce(self.name, number % self._partitions, value, time.monotonic())
        self.history.produces.append(record)
        with self._lock:
            self._open += 1

        def told(outcome: Outcome, offset: int | None, error: str) -> None:
            record.ended = time.monotonic()
            record.outcome, record.offset, record.error = outcome, offset, error
            with self._lock:
                self._open -= 1

        client.send(record.partition, value, told)


def _close(client: ProducerClient) -> None:
    client.close(_GIVES_UP - 20)


class _Reading:
    """One consumer; it records errors and continues."""

    def __init__(self, name: str, kind: str, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = name
        self.history = History()
        self.failure: Exception | None = None
        self._where = kind, bootstrap, topic, range(partitions)

    def is_busy(self) -> bool:
        return self.failure is not None or bool(self.history.polls)

    def run(self, stop: threading.Event) -> None:
        try:
            client = open_consumer(*self._where)
            while not stop.is_set():
                try:
                    polled = client.poll()
                except Exception as error:
                    self.history.errors.append(f"{self.name}: {error!r}")
                    stop.wait(0.1)
                    continue
                now = time.monotonic()
                for partition, records in polled.items():
                    self.history.polls.append(Poll(self.name, partition, records, now))
            client.close()
        except Exception as error:
            self.failure = error
