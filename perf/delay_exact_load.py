"""Numbered records to be held back, and a reader that audits them when they come.

``python -m perf.delay_exact_load send|read BOOTSTRAP JSON``, a process of its own. ``send`` is
librdkafka; senders of other languages lie in ``peers/schedulers``. Prints one JSON object.
"""

import json
import random
import sys
import time
from typing import Any, NamedTuple

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
    count: int
    start_ms: int
    spread_ms: int
    far_every: int
    far_ms: int
    size: int

    def words(self) -> list[str]:
        """As arguments of a program."""
        return [str(one) for one in self]


def send(bootstrap: str, load: Load) -> dict[str, float]:
    """Send all of it, and wait until it is acknowledged."""
    from confluent_kafka import Producer

    failures: list[object] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    chance = random.Random(1)
    began = time.perf_counter()
    for number in range(load.count):
        due = load.start_ms + chance.randrange(load.spread_ms)
        if number % load.far_every == 0:
            due += load.far_ms
        text = str(due)
        value = b"%d %09d " % (due, number)
        producer.produce(
            load.topic,
            value.ljust(load.size, b"x"),
            partition=number % load.partitions,
            headers=[("qbus-deliver-at", text)],
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


def read(bootstrap: str, load: Load) -> dict[str, float]:
    """Read what is due, and a second longer; how late, how often and in what order it came."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit"})
    consumer.assign([TopicPartition(load.topic, index, 0) for index in range(load.partitions)])
    seen = bytearray(load.count)
    expected = load.count - -(-load.count // load.far_every)
    late: list[float] = []
    latest = [0] * load.partitions
    disordered, disorder_ms, unexpected = 0, 0, 0
    deadline = load.start_ms / 1000 + load.spread_ms / 1000 + _PATIENCE_S
    while len(late) < expected and time.time() < deadline:
        messages = consumer.consume(5_000, 0.002)
        now_ms = time.time_ns() / 1e6
        for message in messages:
            assert message.error() is None, message.error()
            value, partition = message.value(), message.partition()
            due, number = int(value[:13]), int(value[_NUMBER])
            late.append(now_ms - due)
            seen[number] = min(seen[number] + 1, 2)
            unexpected += number % load.far_every == 0 or number % load.partitions != partition
            if due < latest[partition]:
                disordered += 1
                disorder_ms = max(disorder_ms, latest[partition] - due)
            else:
                latest[partition] = due
    more = consumer.consume(1_000, 1.0)
    consumer.close()
    late.sort()
    return {
        "missing": expected - (len(seen) - seen.count(0)),
        "twice": seen.count(2) + len(more),
        "unexpected": unexpected,
        "early": sum(one < 0 for one in late),
        "disordered": disordered,
        "disorder_ms": disorder_ms,
        "p50": late[len(late) // 2],
        "p99": late[len(late) * 99 // 100],
        "most": late[-1],
    }


if __name__ == "__main__":
    _case, _bootstrap, _load = sys.argv[1:]
    _does: Any = {"send": send, "read": read}[_case]
    print(json.dumps(_does(_bootstrap, Load(*json.loads(_load)))))
