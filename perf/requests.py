"""Requests as services send them: how many a second, how long each takes, what the broker spends.

The load is a program in C (``native/requests.c``) that costs next to nothing beside a broker: each
connection has one request under way. Requests are made here, once for both sides.
"""

import json
import mmap
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count as counter
from pathlib import Path
from time import monotonic

import psutil

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, WORKERS, Setup, both, cpu_seconds, cpu_seconds_of
from qbus.records import Compression, build_batch
from qbus.wire import ApiKey, decode_response, encode_request, encode_response
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.support.raw_client import RawClient
from tests.support.server_process import ServerProcess

PRODUCE_VERSION = 10
FETCH_VERSION = 12
METADATA_VERSION = 9
PARTITIONS = 4
HOST = "127.0.0.1"
SECONDS = 5.0
_PATIENCE_S = 10.0
_WARM_UP = 3
_MOST_REQUESTS_S = 40_000  # of large batches
_MOST_TOUCHED = 2 << 30

_NATIVE = Path(__file__).parent / "native"
_topics = counter()


@dataclass(frozen=True)
class Row:
    """One load: ``connections`` that send produce or fetch requests.

    ``records`` of ``size`` bytes are in each batch. ``acks`` None: the batch is read, and not sent.
    ``idle`` connections are open beside them.
    """

    connections: int
    records: int
    size: int
    acks: int | None
    idle: int = 0

    def __str__(self) -> str:
        what = f"{self.records} x {self.size} B" if self.records > 1 else f"{self.size} B"
        does = "fetch" if self.acks is None else f"produce acks={'all' if self.acks < 0 else 1}"
        idle = f" beside {self.idle} idle" if self.idle else ""
        return f"{does} {what}, {self.connections} connections{idle}"


ROWS = (
    Row(64, 1, 100, 1),
    Row(64, 1, 100, -1),
    Row(16, 160, 100, 1),
    Row(16, 1000, 100, None),
    Row(16, 1000, 1000, None),
    Row(1, 1, 100, 1),
    Row(1, 1, 100, None),
    Row(1000, 1, 100, 1),
    Row(64, 1, 100, 1, idle=900),
)


@dataclass(frozen=True)
class Load:
    """Requests ready to send, where to, and what their answers look like.

    See ``native/requests.c``. Of each request, or of each answer, ``records_size`` bytes are
    records; those of a request begin at ``records_at``, which is 0 where they are in the answer.
    """

    frames: bytes
    ports: tuple[int, ...]
    length: int
    error_at: int
    records_at: int
    records_size: int


class LoadError(Exception):
    """A server, or its load, failed in a row; what was wrong is on stderr."""


def run(rounds: int, scale: float, setup: Setup = MEMORY) -> list[Figure]:
    """Each row, both servers in turn and warm; the worst ratio first."""
    figures: list[Figure] = []
    with both(setup) as servers:
        for row in ROWS:
            rate = Figure(str(row), "requests/s")
            spent = Figure(str(row), "requests per CPU second")
            tail = Figure(str(row), "p99 ms", lower_is_better=True)
            longest = Figure(str(row), "longest ms", lower_is_better=True)
            for turn in range(rounds + 1):
                for server in servers:
                    # A JVM compiles while it is loaded, for many seconds.
                    found = measure(server, row, SECONDS * scale * (1 if turn else _WARM_UP))
                    if turn:
                        rate.add(server.name, found["rate"])
                        spent.add(server.name, found["per_cpu_second"])
                        tail.add(server.name, found["p99_ms"])
                        longest.add(server.name, found["longest_ms"])
            figures += [rate, spent, tail, longest]
    return worst_first(figures)


def run_workers(rounds: int, scale: float) -> list[Figure]:
    """The same with a broker of two workers."""
    return run(rounds, scale, WORKERS)


def worst_first(figures: list[Figure]) -> list[Figure]:
    """The figures by their ratios, the one where the peer is ahead most at the front."""

    def gain(figure: Figure) -> float:
        ratio = figure.ratio or 1.0
        return 1 / ratio if figure.lower_is_better else ratio

    return sorted(figures, key=gain)


def run_floor(rounds: int, scale: float) -> list[Figure]:
    """Each row, both servers as shares of what the least possible server reaches.

    That does the same reads, writes and sends, and nothing else, with one thread, in C.
    """
    figures: list[Figure] = []
    with both() as servers:
        for row in ROWS:
            spent = Figure(str(row), "of the floor's requests per CPU second")
            for turn in range(rounds + 1):
                seconds = SECONDS * scale * (1 if turn else _WARM_UP)
                found = {server.name: measure(server, row, seconds) for server in servers}
                least = measure_floor(servers[0].bootstrap, row, SECONDS * scale)
                for name, one in found.items():
                    if turn:
                        spent.add(name, one["per_cpu_second"] / least["per_cpu_second"])
            figures.append(spent)
    return worst_first(figures)


def measure(server: ServerProcess, row: Row, seconds: float) -> dict[str, float]:
    """Load a server with a row, on a topic of its own."""
    with _topic(server.bootstrap) as topic:
        load = prepare(server.bootstrap, topic, row)
        try:
            return drive(load, row, seconds, partial(cpu_seconds, server))
        except LoadError as error:
            raise LoadError(f"{server.name}: {error}") from error


def measure_floor(bootstrap: str, row: Row, seconds: float) -> dict[str, float]:
    """Load ``native/floor.c`` with a row's requests, as the server at ``bootstrap`` gets them."""
    with _topic(bootstrap) as topic, floor(prepare(bootstrap, topic, row)) as (load, pid):
        return drive(load, row, seconds, partial(cpu_seconds_of, pid))


@contextmanager
def floor(load: Load) -> Iterator[tuple[Load, int]]:
    """Run the least possible server for ``load``: the load to it, and its process id."""
    with tempfile.TemporaryDirectory() as directory:
        words = [directory, load.length, load.records_at, load.records_size, PARTITIONS]
        command = [compiled("floor"), *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                ports = (int(process.stdout.readline()),) * PARTITIONS
                yield replace(load, ports=ports), process.pid
            finally:
                process.kill()


@contextmanager
def _topic(bootstrap: str) -> Iterator[str]:
    topic = f"requests-{next(_topics)}"
    soon = {"file.delete.delay.ms": "100"}  # what was written is gone before the next measurement
    rdkafka.create_topic(bootstrap, topic, PARTITIONS, 1, **soon)
    yield topic
    rdkafka.delete_topic(bootstrap, topic)


def drive(load: Load, row: Row, seconds: float, cpu: Callable[[], float]) -> dict[str, float]:
    """Send a row's requests for so long; ``cpu`` tells the server's processor time so far."""
    if load.records_at:
        touch(int(seconds * _MOST_REQUESTS_S) * load.records_size)
    ports = ",".join(map(str, load.ports))
    with tempfile.NamedTemporaryFile() as frames:
        frames.write(load.frames)
        frames.flush()
        words = [HOST, ports, seconds, row.connections, row.idle, load.length, load.error_at]
        command = [compiled("requests"), *map(str, words), frames.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "counting\n":
                raise LoadError(f"{row}: it failed while it warmed up, as it says above")
            before = cpu()
            if not (line := process.stdout.readline()):
                raise LoadError(f"{row}: it failed, as it says above")
            outcome = json.loads(line)
            spent = cpu() - before
    return {
        "rate": outcome["answers"] / outcome["seconds"],
        "per_cpu_second": outcome["answers"] / max(spent, 0.01),
        "p50_ms": outcome["p50_us"] / 1000,
        "p99_ms": outcome["p99_us"] / 1000,
        "longest_ms": outcome["longest_us"] / 1000,
        "mb_s": outcome["bytes"] / outcome["seconds"] / 1e6,
    }


def touch(size: int) -> None:
    """Use ``size`` bytes of free memory once, or what there is, and free them.

    A virtual machine gets memory from its host page by page, at first use, and gives back what is
    free for long: whoever writes to files then pays more for each page than the other did.
    """
    pages = min(size, _MOST_TOUCHED, psutil.virtual_memory().free // 2) // mmap.PAGESIZE + 1
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory[:: mmap.PAGESIZE] = b"\1" * pages


@cache
def compiled(name: str) -> str:
    """Compile the program ``native/NAME.c``; its path."""
    binary = Path(tempfile.mkdtemp(prefix="qbus-perf-")) / name
    command = ["cc", "-O2", "-std=gnu11", "-o", str(binary), str(_NATIVE / f"{name}.c")]
    subprocess.run(command, check=True, text=True)
    return str(binary)


def prepare(bootstrap: str, topic: str, row: Row, codec: Compression = Compression.NONE) -> Load:
    """The row's requests to ``topic``, after one of each was answered well.

    What is to be fetched is sent there, one batch to each partition.
    """
    half = row.size // 2  # half random, half repeated: about what logs compress to
    records = [
        (None, os.urandom(half) + b"x" * (row.size - half), (), 1_700_000_000_000)
        for _ in range(row.records)
    ]
    batch = build_batch(records, compression=codec)
    acks = row.acks or 1
    ports = leaders(int(bootstrap.rpartition(":")[2]), topic)
    frames = [produce_frame(topic, index, batch, acks) for index in range(PARTITIONS)]
    answers = [_produced(port, frame) for port, frame in zip(ports, frames, strict=True)]
    if row.acks is not None:
        at = frames[0].index(bytes(batch))
        position = error_position(topic)
        return Load(b"".join(frames), ports, len(answers[0]), position, at, len(batch))
    frames = [fetch_frame(topic, index) for index in range(PARTITIONS)]
    for port, frame in zip(ports, frames, strict=True):
        with RawClient(port) as client:
            answer = _answer(client, frame)
        _, response = decode_response(ApiKey.FETCH, FETCH_VERSION, memoryview(answer))
        assert len(response.responses[0].partitions[0].records) == len(batch)
    return Load(b"".join(frames), ports, len(answer), -1, 0, len(batch))


def leaders(port: int, topic: str) -> tuple[int, ...]:
    """The ports of the leaders of a topic's partitions, once each has one."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    frame = b"".join(encode_request(ApiKey.METADATA, METADATA_VERSION, 0, "perf", request))
    deadline = monotonic() + _PATIENCE_S
    while True:
        with RawClient(port) as client:
            answer = memoryview(_answer(client, frame))
        _, response = decode_response(ApiKey.METADATA, METADATA_VERSION, answer)
        known = {broker.node_id: broker.port for broker in response.brokers}
        led = {one.partition_index: one.leader_id for one in response.topics[0].partitions}
        if len(led) == PARTITIONS and set(led.values()) <= known.keys():
            return tuple(known[led[index]] for index in range(PARTITIONS))
        assert monotonic() < deadline, f"partitions without a leader: {led}"


def _produced(port: int, frame: bytes) -> bytes:
    """The answer without an error; a topic that is new may not be led yet."""
    deadline = monotonic() + _PATIENCE_S
    while True:
        with RawClient(port) as client:
            answer = _answer(client, frame)
        _, response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, memoryview(answer))
        code = response.responses[0].partition_responses[0].error_code
        if code == 0:
            return answer
        assert monotonic() < deadline, f"error {code}"


def _answer(client: RawClient, frame: bytes) -> bytes:
    client.send(frame)
    answer = client.receive_frame()
    assert answer is not None, "the broker closed the connection"
    return answer


def produce_frame(topic: str, index: int, batch: bytearray, acks: int) -> bytes:
    """A Produce request with one batch, its length before it."""
    data = PartitionProduceData(index=index, records=bytes(batch))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return b"".join(encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "perf", request))


def fetch_frame(topic: str, index: int) -> bytes:
    """A Fetch request for the first batch of a partition, its length before it."""
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return b"".join(encode_request(ApiKey.FETCH, FETCH_VERSION, 0, "perf", request))


def error_position(topic: str) -> int:
    """Where an answer to :func:`produce_frame` has its error code, behind the length."""

    def answer(code: int) -> bytes:
        partition = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
        responses = [TopicProduceResponse(name=topic, partition_responses=[partition])]
        response = ProduceResponse(responses=responses)
        parts = encode_response(ApiKey.PRODUCE, PRODUCE_VERSION, 0, response)
        return b"".join(map(bytes, parts))[4:]

    pairs = zip(answer(0), answer(-1), strict=True)
    return next(at for at, (one, other) in enumerate(pairs) if one != other)
