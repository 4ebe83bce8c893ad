"""Transactional clients that run random transactions, and what they saw."""

import faulthandler
import itertools
import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import confluent_kafka as ck
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.support.waiting import wait_until

from .clients import Client, Failed, open_client
from .history import Ends, History, Outcome, Poll, Send, Transaction

_GIVES_UP = 200.0
_MOST_OPERATIONS = 4
_MOST_VALUES = 3
_ABORTS = 0.1
_ABANDONS = 0.02
_LOOK_EVERY = 0.2


class TransactionalLoad:
    """Clients, each in a thread, over the partitions of one topic; see ``clients`` for their makes.

    ``pause``: seconds between two transactions of a client, at most. Their number is ``done``.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        clients: Sequence[str] = ("qbus",) * 5,
        seed: int = 0,
        timeout_ms: int = 20_000,
        pause: float = 0.1,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = range(partitions)
        self._timeout_ms = timeout_ms
        self._stop = threading.Event()
        self._loops = [
            _Loop(
                open_client(
                    kind,
                    bootstrap,
                    f"{topic}-{number}",
                    [(topic, index) for index in self._partitions],
                    timeout_ms,
                ),
                f"{topic}-{number}",
                partitions,
                random.Random(f"{seed}-{number}"),
                pause,
            )
            for number, kind in enumerate(clients)
        ]
        self._ends: list[Ends] = []
        targets = [*(loop.run for loop in self._loops), self._look]
        self._threads = [
            threading.Thread(target=target, args=(self._stop,), daemon=True) for target in targets
        ]

    @property
    def done(self) -> int:
        """The number of transactions that were committed."""
        return sum(loop.done for loop in self._loops)

    def start(self) -> None:
        """Start all clients."""
        for thread in self._threads:
            thread.start()

    def wait_done(self, count: int, timeout: float = 120.0) -> None:
        """Wait until so many more transactions are committed."""
        goal = self.done + count
        wait_until(lambda: self.done >= goal, f"{count} transactions", timeout)

    def finish(self) -> History:
        """Stop all clients, read everything at the end, and return the history.

        Fails if the last stable offset does not reach the end within the time-out of transactions.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join(_GIVES_UP)
            if thread.is_alive():
                faulthandler.dump_traceback()
                raise AssertionError("a client does not stop")
        history = History.merged(loop.history for loop in self._loops)
        history.ends = self._ends
        slack = 20.0
        ends = wait_until(
            self._stable_ends, "the last stable offset at the end", self._timeout_ms / 1000 + slack
        )
        history.final = {
            index: [(record.offset, record.value) for record in records]
            for index, records in read_committed(self._bootstrap, self._topic, ends).items()
        }
        names = [loop.name for loop in self._loops]
        history.positions = positions(self._bootstrap, names, self._topic)
        return history

    def _stable_ends(self) -> dict[int, int]:
        """The ends of all partitions if nothing is open; else nothing."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        with suppress(ck.KafkaException, TimeoutError):
            stable = _ends(admin, self._topic, self._partitions, IsolationLevel.READ_COMMITTED)
            ends = _ends(admin, self._topic, self._partitions, IsolationLevel.READ_UNCOMMITTED)
            return ends if stable == ends else {}
        return {}

    def _look(self, stop: threading.Event) -> None:
        """Look at the ends again and again."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        while not stop.wait(_LOOK_EVERY):
            asked = time.monotonic()
            with suppress(ck.KafkaException, TimeoutError):  # librdkafka may be late in its answer
                stable = _ends(admin, self._topic, self._partitions, IsolationLevel.READ_COMMITTED)
                ends = _ends(admin, self._topic, self._partitions, IsolationLevel.READ_UNCOMMITTED)
                told = time.monotonic()
                self._ends += [
                    Ends(index, stable[index], ends[index], asked, told)
                    for index in ends
                    if min(stable[index], ends[index]) >= 0  # or librdkafka knows no leader
                ]


class Abandoned(Failed):
    """A client leaves its transaction open, as if it died."""


class _Loop:
    """One client, which runs one transaction after the other until it is stopped."""

    def __init__(
        self, client: Client, name: str, partitions: int, chance: random.Random, pause: float
    ) -> None:
        self.name = name
        self.history = History()
        self.done = 0
        self._client = client
        self._partitions = partitions
        self._random = chance
        self._pause = pause
        self._numbers = itertools.count()
        self._session = 0

    def run(self, stop: threading.Event) -> None:
        self._open(stop)
        while not stop.wait(self._random.random() * self._pause):
            one = Transaction(self.name, time.monotonic())
            self.history.transactions.append(one)
            try:
                self._carry_out(one)
            except Failed as error:
                one.error = str(error)
                self._recover(one, error, stop)
            one.ended = time.monotonic()
            self.done += one.outcome is Outcome.COMMITTED
        self._client.close()

    def _open(self, stop: threading.Event) -> None:
        """Open the client anew, however often that takes."""
        self._session += 1
        while not stop.is_set():
            try:
                self._client.open()
            except Failed as error:
                self.history.errors.append(f"{self.name}: {error}")
                stop.wait(0.2)
            else:
                return

    def _carry_out(self, one: Transaction) -> None:
        self._client.begin()
        for _ in range(self._random.randint(1, _MOST_OPERATIONS)):
            self._random.choice([self._send, self._poll])(one)
        self._client.add_positions()
        fate = self._random.random()
        if fate < _ABANDONS:
            raise Abandoned("abandoned")
        if fate < _ABANDONS + _ABORTS:
            self._client.abort()
            self._rewind()
            return
        one.committing = time.monotonic()
        one.outcome = Outcome.UNKNOWN
        self._client.commit()
        one.outcome = Outcome.COMMITTED

    def _send(self, one: Transaction) -> None:
        for _ in range(self._random.randint(1, _MOST_VALUES)):
            value = f"{self.name}/{next(self._numbers)}"
            send = Send(self._random.randrange(self._partitions), value)
            one.sends.append(send)
            self._client.send(send)

    def _poll(self, one: Transaction) -> None:
        for partition, records in self._client.poll(self._random.choice([0.0, 0.05, 0.2])).items():
            one.polls.append(Poll(partition, records, time.monotonic(), self._session))

    def _recover(self, one: Transaction, error: Failed, stop: threading.Event) -> None:
        """Abort if the client can; else begin anew, as after a crash."""
        if isinstance(error, Abandoned):
            self._open(stop)
            return
        try:
            if not error.is_aborted:
                self._client.abort()
            one.outcome = Outcome.ABORTED
            self._rewind()
        except Failed:
            self._open(stop)

    def _rewind(self) -> None:
        self._session += 1
        self._client.rewind()


class Stored(NamedTuple):
    """A committed record."""

    offset: int
    key: str | None
    value: str


def read_committed(
    bootstrap: str, topic: str, partitions: Iterable[int], within: float = 120.0
) -> dict[int, list[Stored]]:
    """All that is committed in these partitions, from the start to the last stable offset."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found: dict[int, list[Stored]] = {index: [] for index in partitions}
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in found])
    waiting = set(found)
    deadline = time.monotonic() + within
    try:
        while waiting:
            assert time.monotonic() < deadline, f"{waiting} were not read to the end"
            for message in consumer.consume(1_000, 0.5):
                _take(message, found, waiting)
    finally:
        consumer.close()
    return found


def _take(message: Any, found: dict[int, list[Stored]], waiting: set[int]) -> None:
    error = message.error()
    if error is None:
        key = message.key()
        stored = Stored(
            message.offset(), None if key is None else key.decode(), message.value().decode()
        )
        found[message.partition()].append(stored)
    elif error.code() == ck.KafkaError._PARTITION_EOF:
        waiting.discard(message.partition())
    elif not error.retriable():
        raise ck.KafkaException(error)


def positions(bootstrap: str, groups: Sequence[str], topic: str) -> dict[str, dict[int, int]]:
    """The committed offsets of groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[str, dict[int, int]] = {}
    for group in groups:
        asked = ck.ConsumerGroupTopicPartitions(group)
        (future,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
        found[group] = {
            place.partition: place.offset
            for place in future.result(30).topic_partitions
            if place.topic == topic and place.offset >= 0
        }
    return found


def _ends(
    admin: AdminClient, topic: str, partitions: Iterable[int], level: IsolationLevel
) -> dict[int, int]:
    asked = {ck.TopicPartition(topic, index): OffsetSpec.latest() for index in partitions}
    listed = admin.list_offsets(asked, isolation_level=level, request_timeout=5)
    return {place.partition: int(future.result(10).offset) for place, future in listed.items()}
