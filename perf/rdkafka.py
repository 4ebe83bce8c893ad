"""librdkafka as the load, in a process of its own: ``python -m perf.rdkafka CASE BOOTSTRAP JSON``.

Prints one JSON object. Connecting and metadata are not part of what is timed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from perf import quiet
from perf.load_process import LoadFailedError, LoadProcess

_CHUNK = 1000
_MOST_AT_ONCE = 10_000
_READY = "ready\n"
_END_S = 60.0


def run(case: str, bootstrap: str, **options: Any) -> dict[str, Any]:
    """Run one case in a fresh process and return what it measured."""
    command = [sys.executable, *_arguments(case, bootstrap, options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_together(case: str, bootstrap: str, topics: Sequence[str], **options: Any) -> float:
    """Run a process for each topic, all from one moment on, when all are connected.

    Return the time until the last of them is done, in seconds. Raises
    :class:`~perf.load_process.LoadFailedError` when one fails.
    """
    with ExitStack() as stack:
        loads = [
            stack.enter_context(
                LoadProcess(
                    f"{case} of {topic}",
                    _arguments(case, bootstrap, {**options, "topic": topic, "waits": True}),
                )
            )
            for topic in topics
        ]
        for load in loads:
            if (line := load.line()) != _READY:
                raise LoadFailedError(f"the load {load.name} said {line!r} before it began")
        for load in loads:
            load.say("")
        spans = [json.loads(load.line()) for load in loads]
        for load in loads:
            load.wait(_END_S)
    return float(max(one["ended"] for one in spans) - min(one["started"] for one in spans))


def _arguments(case: str, bootstrap: str, options: dict[str, Any]) -> list[str]:
    return ["-m", "perf.rdkafka", case, bootstrap, json.dumps(options)]


def _begin(*, waits: bool) -> float:
    """The time of now; if it ``waits``, when the process that started this one says so."""
    if waits:
        print(_READY, end="", flush=True)
        sys.stdin.readline()
    return time.perf_counter()


def _measured(started: float, records: int, volume: int) -> dict[str, Any]:
    """What a load measured that ends now. Times are of one clock for all processes."""
    ended = time.perf_counter()
    seconds = ended - started
    return {
        "started": started,
        "ended": ended,
        "seconds": seconds,
        "records_s": records / seconds,
        "mb_s": volume / seconds / 1e6,
    }


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1, **config: str
) -> None:
    """Create ``topic``."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(quiet.at(bootstrap))
    admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(60)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete ``topic``."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(quiet.at(bootstrap))
    admin.delete_topics([topic])[topic].result(60)


def end_offset(bootstrap: str, topic: str, partitions: int = 1) -> int:
    """The sum of the ends of the topic's first partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**quiet.at(bootstrap), "group.id": "perf"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
        for index in range(partitions)
    ]
    consumer.close()
    return sum(ends)


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    size: int,
    acks: str = "all",
    compression: str = "none",
    client: dict[str, str] | None = None,
    waits: bool = False,
) -> dict[str, Any]:
    """Send ``count`` values of ``size`` bytes as fast as they are taken; MB/s and records/s.

    ``client``: further settings of the client. ``waits``: it begins when it is told to.
    """
    from confluent_kafka import KafkaException, Producer

    failed = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            **quiet.at(bootstrap),
            "acks": acks,
            "compression.type": compression,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **(client or {}),
        }
    )
    producer.list_topics(topic, timeout=30)
    # Half random, half repeated: about what logs compress to.
    values = [os.urandom(size // 2) + b"x" * (size - size // 2) for _ in range(_CHUNK)]
    started = _begin(waits=waits)
    sent = 0
    while sent < count:
        messages = [{"value": value} for value in values[: count - sent]]
        while messages:
            taken = producer.produce_batch(topic, messages, on_delivery=on_delivery)
            sent += taken
            messages = [m for m in messages if m.get("_error") is not None]
            for message in messages:
                del message["_error"]
            producer.poll(0.05 if messages else 0)
    if producer.flush(300):
        raise KafkaException("not everything was delivered")
    measured = _measured(started, count, count * size)
    if failed:
        raise KafkaException(f"{failed} records failed")
    return measured


def transact(bootstrap: str, topic: str, records: int, size: int, seconds: float) -> dict[str, Any]:
    """Commit transactions of so many values, one after the other; transactions/s."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            **quiet.at(bootstrap),
            "transactional.id": f"{topic}-{records}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(60)
    messages = [{"value": b"x" * size}] * records
    done = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        producer.begin_transaction()
        producer.produce_batch(topic, [dict(one) for one in messages], partition=0)
        producer.commit_transaction(60)
        done += 1
    return {"seconds": elapsed, "transactions_s": done / elapsed}


def consume(
    bootstrap: str,
    topic: str,
    count: int,
    partitions: int = 1,
    start: int = 0,
    client: dict[str, str] | None = None,
    waits: bool = False,
) -> dict[str, Any]:
    """Read ``count`` records from offset ``start`` on; MB/s of values and records/s.

    ``client``: further settings of the client. ``waits``: it begins when it is told to.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **quiet.at(bootstrap),
            "group.id": "perf",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1 << 20,
            "queued.min.messages": 1_000_000,
            **(client or {}),
        }
    )
    consumer.list_topics(topic, timeout=30)
    started = _begin(waits=waits)
    consumer.assign([TopicPartition(topic, p, start) for p in range(partitions)])
    seen = volume = 0
    while seen < count:
        # For more than are left it would wait until the time is up.
        batch = consumer.consume(min(count - seen, _MOST_AT_ONCE), 10)
        if not batch:
            raise TimeoutError(f"only {seen} of {count} records came")
        for message in batch:
            if message.error():
                raise RuntimeError(str(message.error()))
            volume += len(message)
        seen += len(batch)
    measured = _measured(started, seen, volume)
    consumer.close()
    return measured


def latency(
    bootstrap: str, topic: str, rate: int, seconds: float, size: int, acks: str
) -> dict[str, Any]:
    """Send ``rate`` records/s and read them here too; milliseconds from send to receipt."""
    import threading

    from confluent_kafka import Consumer, Producer, TopicPartition

    count = int(rate * seconds)
    taken: list[float] = []
    consumer = Consumer({**quiet.at(bootstrap), "group.id": "perf"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.consume(1, 0.5)

    def read() -> None:
        deadline = time.perf_counter() + seconds + 20
        while len(taken) < count and time.perf_counter() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                sent = message.value() or b""
                taken.append(time.perf_counter() - float(sent[:20]))

    reader = threading.Thread(target=read)
    reader.start()
    producer = Producer({**quiet.at(bootstrap), "acks": acks})
    producer.list_topics(topic, timeout=30)
    padding = b" " * (size - 20)
    start = time.perf_counter()
    for index in range(count):
        due = start + index / rate
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(min(wait, 0.001))
        producer.produce(topic, f"{time.perf_counter():<20.9f}".encode()[:20] + padding)
        producer.poll(0)
    producer.flush(30)
    reader.join()
    consumer.close()
    if len(taken) < count:
        raise TimeoutError(f"only {len(taken)} of {count} records came")
    steady = sorted(taken[count // 5 :])  # the first fifth warms up
    return {
        f"p{p:g}_ms": steady[min(len(steady) - 1, int(len(steady) * p / 100))] * 1000
        for p in (50, 99, 99.9)
    }


if __name__ == "__main__":
    _case, _bootstrap, _options = sys.argv[1:]
    _cases: dict[str, Callable[..., dict[str, Any]]] = {
        "produce": produce,
        "transact": transact,
        "consume": consume,
        "latency": latency,
    }
    print(json.dumps(_cases[_case](_bootstrap, **json.loads(_options))))
