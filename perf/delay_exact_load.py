"""Numbered records to be held back, and a reader that audits them when they come.

``python -m perf.delay_exact_load send|read BOOTSTRAP JSON``, a process of its own. ``send`` is
librdkafka; senders of other languages lie in ``peers/schedulers``. Prints one JSON object.
"""

import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from perf import quiet

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITIONS = 3
FAR_EVERY = 100
FAR_MS = 31 * 86_400_000
_PATIENCE_S = 60.0
_NUMBER = slice(14, 23)


class Load(NamedTuple):
    """Records numbered from 0: to partition number modulo ``partitions``, due at random.

    They are due within ``spread_ms`` from ``start_ms`` on, of every ``far_every`` one ``far_ms``
    later. Values are of ``size`` bytes and begin with the due time and the number.
    """

    topic: str
    partitions: int
    records: int
    start_ms: int
    spread_ms: int
    far_every: int
    far_ms: int
    size: int

    def words(self) -> list[str]:
        """As arguments of a program."""
        return [str(one) for one in self]


def value_of(due_ms: int, number: int, size: int) -> bytes:
    """The value of a record."""
    return (b"%d %09d " % (due_ms, number)).ljust(size, b"x")


def send(bootstrap: str, load: Load) -> dict[str, float]:
    """Send all of it, and wait until it is acknowledged."""
    from confluent_kafka import Producer

    failures: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            **quiet.at(bootstrap),
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    chance = random.Random(1)
    began = time.perf_counter()
    for number in range(load.records):
        due = load.start_ms + chance.randrange(load.spread_ms)
        if number % load.far_every == 0:
            due += load.far_ms
        producer.produce(
            load.topic,
            value_of(due, number, load.size),
            partition=number % load.partitions,
            headers=[("qbus-deliver-at", str(due))],
            on_delivery=on_delivery,
        )
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(_PATIENCE_S)
    assert not left, f"{left} records were not taken"
    assert not failures, failures[:3]
    return {
        "seconds": time.perf_counter() - began,
        "spare_ms": load.start_ms - time.time_ns() / 1e6,
    }


class Audit:
    """What came of a load: whether each record came once, in order, and how late."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._seen = bytearray(load.records)
        self._late: list[float] = []
        self._latest = [0] * load.partitions
        self._disordered = self._disorder_ms = self._unexpected = 0
        self._expected = load.records - -(-load.records // load.far_every)

    @property
    def is_complete(self) -> bool:
        """Whether as many came as are due."""
        return len(self._late) >= self._expected

    def take(self, value: bytes, partition: int, now_ms: float) -> None:
        """A record came."""
        due, number = int(value[:13]), int(value[_NUMBER])
        self._late.append(now_ms - due)
        self._seen[number] = min(self._seen[number] + 1, 2)
        is_far = number % self._load.far_every == 0
        self._unexpected += is_far or number % self._load.partitions != partition
        if due < self._latest[partition]:
            self._disordered += 1
            self._disorder_ms = max(self._disorder_ms, self._latest[partition] - due)
        else:
            self._latest[partition] = due

    def result(self) -> dict[str, float]:
        """Numbers of records, and times in milliseconds."""
        late = sorted(self._late)
        far = self._seen[:: self._load.far_every]
        return {
            "missing": self._seen.count(0) - far.count(0),
            "twice": self._seen.count(2),
            "unexpected": self._unexpected,
            "early": sum(one < 0 for one in late),
            "disordered": self._disordered,
            "disorder_ms": self._disorder_ms,
            "p50": late[len(late) // 2],
            "p99": late[len(late) * 99 // 100],
            "most": late[-1],
        }


def read(bootstrap: str, load: Load) -> dict[str, float]:
    """Read what is due, and a second longer; see :meth:`Audit.result`."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**quiet.at(bootstrap), "group.id": "audit"})
    consumer.assign([TopicPartition(load.topic, index, 0) for index in range(load.partitions)])
    audit = Audit(load)
    # On a busy machine they come late: they are missing when no more come.
    end = (load.start_ms + load.spread_ms) / 1000
    came = time.time()
    while not audit.is_complete and time.time() < max(came, end) + _PATIENCE_S:
        messages = consumer.consume(5_000, 0.002)
        _take(messages, audit)
        came = time.time() if messages else came
    _take(consumer.consume(1_000, 1.0), audit)
    consumer.close()
    return audit.result()


def _take(messages: "list[Message]", audit: Audit) -> None:
    now_ms = time.time_ns() / 1e6
    for message in messages:
        assert message.error() is None, message.error()
        audit.take(message.value() or b"", message.partition() or 0, now_ms)


if __name__ == "__main__":
    _case, _bootstrap, _load = sys.argv[1:]
    _does: Any = {"send": send, "read": read}[_case]
    print(json.dumps(_does(_bootstrap, Load(*json.loads(_load)))))
