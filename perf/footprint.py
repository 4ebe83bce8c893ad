"""Start-up time and memory: idle, and after a load."""

import tempfile
import time
from pathlib import Path

from perf import quiet, rdkafka
from perf.peers import kafka
from perf.report import Figure
from perf.servers import MEMORY, both, resident_mb
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess

_SETTLE_SECONDS = 5


def run_startup(rounds: int, scale: float) -> list[Figure]:  # noqa: ARG001 - the runner's call
    """From starting the process to the first record that it acknowledged."""
    fresh = Figure("process start to first acknowledged record", "s", lower_is_better=True)
    answering = Figure("process start to first answer", "s", lower_is_better=True)
    for turn in range(rounds + 1):
        with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
            servers: list[ServerProcess] = [BrokerProcess(Path(directory, "qbus"))]
            if kafka.missing() is None:
                peer = kafka.KafkaProcess(Path(directory, "kafka"))
                peer.command()  # formats its storage, which is not part of a start
                servers.append(peer)
            for server in servers:
                answered, acknowledged = _first_record(server)
                if turn == 0:
                    continue  # fills the page cache, and compiles Python's modules
                answering.add(server.name, answered)
                fresh.add(server.name, acknowledged)
    return [fresh, answering]


def _first_record(server: ServerProcess) -> tuple[float, float]:
    from confluent_kafka import Producer

    done: list[object] = []
    started = time.perf_counter()
    server.start()
    answered = time.perf_counter() - started
    producer = Producer({**quiet.at(server.bootstrap), "acks": "all", "linger.ms": 0})
    producer.produce("first", b"record", on_delivery=lambda error, _: done.append(error))
    while not done:
        producer.poll(0.001)
    acknowledged = time.perf_counter() - started
    if done[0] is not None:
        raise RuntimeError(str(done[0]))
    server.stop()
    return answered, acknowledged


def run_memory(rounds: int, scale: float) -> list[Figure]:  # noqa: ARG001 - the runner's call
    """Resident memory of a fresh broker, and of one that took and gave a load."""
    idle = Figure("resident memory, idle", "MB", lower_is_better=True)
    loaded = Figure("resident memory after the load", "MB", lower_is_better=True)
    with both(MEMORY) as servers:
        time.sleep(_SETTLE_SECONDS)
        for server in servers:
            idle.add(server.name, resident_mb(server))
            count = int(3_000_000 * scale)
            rdkafka.create_topic(server.bootstrap, "load", 6)
            rdkafka.run("produce", server.bootstrap, topic="load", count=count, size=100)
            rdkafka.run("consume", server.bootstrap, topic="load", count=count, partitions=6)
            time.sleep(_SETTLE_SECONDS)
            loaded.add(server.name, resident_mb(server))
    return [idle, loaded]
