"""librdkafka schedules records and reads them: ``python -m perf.delay_load BOOTSTRAP JSON``.

A process of its own. Prints one JSON object: how long scheduling took and, if it waited for them,
how late the records were.
"""

import json
import random
import subprocess
import sys
import time
from typing import Any

import psutil

from perf import quiet

PARTITIONS = 3
_PATIENCE_S = 120.0


def run(bootstrap: str, **options: Any) -> dict[str, float]:
    """Run one load in a fresh process; see :func:`load`."""
    command = [sys.executable, "-m", "perf.delay_load", bootstrap, json.dumps(options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def load(
    bootstrap: str,
    topic: str,
    count: int,
    lead_ms: int,
    spread_ms: int,
    size: int,
    header: str = "qbus-deliver-at",
    *,
    wait: bool = False,
    broker: int | None = None,
) -> dict[str, float]:
    """Send ``count`` values of ``size`` bytes with a time in ``header``: at random within
    ``spread_ms``, which begin ``lead_ms`` from now. ``wait``: read them, too, and tell what the
    process ``broker`` spends on that.
    """
    from confluent_kafka import Producer

    ends = _ends(bootstrap, topic) if wait else []
    start = time.time_ns() // 1_000_000 + lead_ms
    dues = [start + random.Random(number).randrange(spread_ms) for number in range(count)]
    producer = Producer(
        {
            **quiet.at(bootstrap),
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    filler = b"x" * (size - 13)
    began = time.perf_counter()
    for number, due in enumerate(dues):
        text = str(due)
        value = text.encode() + filler
        while True:
            try:
                producer.produce(
                    topic, value, partition=number % PARTITIONS, headers=[(header, text)]
                )
                break
            except BufferError:
                producer.poll(0.02)
    left = producer.flush(_PATIENCE_S)
    assert left == 0, f"{left} records were not taken"
    result = {"seconds": time.perf_counter() - began}
    result["spare_ms"] = start - time.time_ns() / 1e6
    if not wait:
        return result
    before = _spent(broker)
    result |= _lateness(bootstrap, topic, count, ends)
    return result | {"broker_s": _spent(broker) - before}


def _spent(pid: int | None) -> float:
    """Processor time of a process, in seconds."""
    if pid is None:
        return 0.0
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _ends(bootstrap: str, topic: str) -> list[int]:
    """Where each partition ends for consumers."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**quiet.at(bootstrap), "group.id": "perf"})
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
    consumer.close()
    return ends


def _lateness(bootstrap: str, topic: str, count: int, starts: list[int]) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**quiet.at(bootstrap), "group.id": "perf"})
    consumer.assign([TopicPartition(topic, index, at) for index, at in enumerate(starts)])
    late: list[float] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(late) < count and time.monotonic() < deadline:
        messages = consumer.consume(5_000, 0.002)
        now_ms = time.time_ns() / 1e6
        late += [now_ms - int((message.value() or b"")[:13]) for message in messages]
    consumer.close()
    late.sort()
    return {
        "received": len(late),
        "early": sum(one < 0 for one in late),
        "p50": late[len(late) // 2],
        "p99": late[len(late) * 99 // 100],
    }


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1], **json.loads(sys.argv[2]))))
