"""Several brokers on one machine beside one: how long they take to start, and their memory."""

import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer

from perf import quiet, rdkafka
from perf.report import Figure
from tests.support.broker_process import BrokerProcess
from tests.support.workers_process import WorkersProcess

COUNTS = (2, 4)
_SETTLE_S = 2.0


class Alone(BrokerProcess):
    """One broker, which the workers are compared with."""

    name = "alone"


def run(rounds: int, scale: float) -> list[Figure]:  # noqa: ARG001 - the runner's call
    """From the start to a record acknowledged by each worker; then the memory of all processes.

    Memory is proportional: what processes share counts once.
    """
    figures = []
    for count in COUNTS:
        start = Figure(f"start to a record by each of {count}", "s", lower_is_better=True)
        memory = Figure(f"memory of {count} workers, idle", "MB", lower_is_better=True)
        for turn in range(rounds + 1):
            with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
                workers = WorkersProcess(Path(directory, "workers"), count)
                alone = Alone(Path(directory, "alone"))
                for broker, partitions in ((workers, count), (alone, 1)):
                    seconds, used = _measure(broker, partitions)
                    if turn:
                        start.add(broker.name, seconds)
                        memory.add(broker.name, used)
        figures += [start, memory]
    return figures


def _measure(broker: BrokerProcess, partitions: int) -> tuple[float, float]:
    errors: list[object] = []
    started = time.perf_counter()
    broker.start()
    rdkafka.create_topic(broker.bootstrap, "first", partitions)
    producer = Producer({**quiet.at(broker.bootstrap), "acks": "all", "linger.ms": 0})
    for index in range(partitions):
        producer.produce(
            "first", b"record", partition=index, on_delivery=lambda error, _: errors.append(error)
        )
    while len(errors) < partitions:
        producer.poll(0.001)
    seconds = time.perf_counter() - started
    if any(errors):
        raise RuntimeError(str(errors))
    time.sleep(_SETTLE_S)
    first = psutil.Process(broker.pid)
    processes = [first, *first.children(recursive=True)]
    used = sum(one.memory_full_info().pss for one in processes) / 1e6
    broker.stop()
    return seconds, used
