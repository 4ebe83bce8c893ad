"""The SDK beside confluent-kafka, aiokafka and kafka-python, against one and the same broker.

Every load is a process of its own, they take turns, and each must send or read every record. All
producers are idempotent with ``acks="all"`` and wait 5 ms for more records; all clients may buffer
64 MiB, where they have a limit. The ceiling of all of them is what sockets alone carry.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import count as counter
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from perf import before, rdkafka, sdk_client
from perf.report import Figure
from perf.servers import MEMORY
from tests.support.broker_process import BrokerProcess

RATE = 5000
SIZES = {100: 4_000_000, 1000: 1_000_000}
_SLOW = {"kafka_python": 20, "aiokafka": 20}
"""Clients for which a fraction of the records takes as long."""
_COSTS = {"records_s": "records/s", "cpu_s": "CPU s per million", "memory_mb": "MB at most"}
_DELAYS = {"p50_ms": "ms (p50)", "p99_ms": "ms (p99)"}
_NAMES = {
    "qbus": "qbus",
    "qbus_aio": "qbus.aio",
    "confluent": "confluent-kafka",
    "kafka_python": "kafka-python",
    "aiokafka": "aiokafka",
    "ceiling": "sockets alone,",
}

_WAITING = ("send_and_wait", "send_and_wait_by_many")
"""Loads that wait for each record: one caller, or many at a time."""

_topics = counter()


class Side(NamedTuple):
    """One way to use a client: a module of ``perf.peers``, and what of it is used."""

    client: str
    load: str

    def __str__(self) -> str:
        name, is_before, _ = self.client.partition(sdk_client.BEFORE)
        return f"{_NAMES[name]} {self.load}{' before' if is_before else ''}"


class Pair(NamedTuple):
    """What is compared: a way to use the SDK, and a peer's way to do the same."""

    ours: Side
    peer: Side

    def __str__(self) -> str:
        return f"{self.ours} / {self.peer}"


_FACES = ("qbus", "qbus_aio")
_ALIKE = (("qbus", "kafka_python"), ("qbus_aio", "aiokafka"))


def _pairs(loads: tuple[str, ...], confluent: str, alike: tuple[str, ...]) -> list[Pair]:
    """Each load of both faces beside one of confluent-kafka, some beside those of the others."""
    with_confluent = product(loads, _FACES)
    pairs = [Pair(Side(face, load), Side("confluent", confluent)) for load, face in with_confluent]
    with_others = product(alike, _ALIKE)
    return pairs + [Pair(Side(ours, load), Side(peer, load)) for load, (ours, peer) in with_others]


def run(rounds: int, scale: float) -> list[Figure]:
    """Send and read records of 100 B and of 1 KB; then the time from end to end at a fixed rate."""
    sends: tuple[str, ...] = ("send", "send_many", "send_arrow")
    reads: tuple[str, ...] = ("iterate", "poll", "poll_arrow")
    if find_spec("pyarrow") is None:
        sends, reads = sends[:-1], reads[:-1]
        print("pyarrow is not installed: send_arrow and poll_arrow are left out", file=sys.stderr)
    if before.checkout is not None:
        sending, reading = _pairs_before(sends), _pairs_before(reads)
        sending.append(_pair_before("qbus", "send_reported"))
        waiting = _pairs_before(("latency", *_WAITING))
        return _measure(sending, reading, waiting, rounds, scale)
    sending = _pairs(sends, "send", ("send",))
    sending += [
        Pair(Side("qbus", "send_many"), Side("confluent", "send_many")),
        Pair(Side("qbus", "send_reported"), Side("confluent", "send_reported")),
    ]
    sending.append(Pair(Side("ceiling", "send"), Side("confluent", "send")))
    reading = _pairs(reads, "poll", ("iterate", "poll"))
    reading.append(Pair(Side("ceiling", "receive"), Side("confluent", "poll")))
    waiting = _pairs(("latency",), "latency", ("latency",))
    for load in _WAITING:
        waiting += _pairs((load,), load, (load,))
    return _measure(sending, reading, waiting, rounds, scale)


def _pairs_before(loads: tuple[str, ...]) -> list[Pair]:
    """Each load of both faces beside the same of the other checkout."""
    return [_pair_before(face, load) for load, face in product(loads, _FACES)]


def _pair_before(face: str, load: str) -> Pair:
    return Pair(Side(face, load), Side(face + sdk_client.BEFORE, load))


def _measure(
    sending: list[Pair], reading: list[Pair], waiting: list[Pair], rounds: int, scale: float
) -> list[Figure]:
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
    ):
        for size, full in SIZES.items():
            bench = Bench(broker.bootstrap, max(int(full * scale), 1000), size)
            figures += bench.compare_sending(sending, rounds)
            figures += bench.compare_reading(reading, rounds)
        bench = Bench(broker.bootstrap, max(int(10 * RATE * scale), 1000), 100)
        figures += bench.compare_waiting(waiting, rounds)
    return figures


class Bench:
    """A broker, and how many records of what size each load sends to it or reads from it."""

    def __init__(self, bootstrap: str, count: int, size: int) -> None:
        self._bootstrap = bootstrap
        self._count = count
        self._size = size

    def compare_sending(self, pairs: list[Pair], rounds: int) -> list[Figure]:
        """What it takes to send, each to a topic of its own."""
        return self._compare(pairs, _COSTS, rounds, self._run_on_fresh_topic)

    def compare_reading(self, pairs: list[Pair], rounds: int) -> list[Figure]:
        """What it takes to read, all from the same topic."""
        counts = {self._count_of(side) for pair in pairs for side in pair}
        with ExitStack() as topics:
            full = {count: topics.enter_context(self._fresh_topic()) for count in counts}
            for count, topic in full.items():
                rdkafka.produce(self._bootstrap, topic, count, self._size)

            def run_side(side: Side) -> dict[str, float]:
                return self._run(side, full[self._count_of(side)])

            return self._compare(pairs, _COSTS, rounds, run_side)

    def compare_waiting(self, pairs: list[Pair], rounds: int) -> list[Figure]:
        """How long it takes from when one process is to send a record until another reads it, or
        until it is acknowledged.
        """
        return self._compare(pairs, _DELAYS, rounds, self._run_waiting)

    def _compare(
        self,
        pairs: list[Pair],
        units: dict[str, str],
        rounds: int,
        run_side: Callable[[Side], dict[str, float]],
    ) -> list[Figure]:
        """Measure all sides in turn, and put them beside each other as the pairs say."""
        sides = dict.fromkeys(side for pair in pairs for side in pair)
        turns = [{side: run_side(side) for side in sides} for _ in range(rounds)]
        return [
            Figure(
                f"{pair}, {self._size} B",
                unit,
                qbus=[turn[pair.ours][cost] for turn in turns],
                peer=[turn[pair.peer][cost] for turn in turns],
                lower_is_better=cost != "records_s",
            )
            for pair, (cost, unit) in product(pairs, units.items())
        ]

    def _run_waiting(self, side: Side) -> dict[str, float]:
        """At a fixed rate all send as many records, with the client's functions for that.

        Those that wait for each acknowledgement send a tenth of them.
        """
        with self._fresh_topic() as topic:
            if side.load in _WAITING:
                count = max(self._count // 10, 100)
                options: dict[str, Any] = {"topic": topic, "size": self._size}
                # The SDK does not linger for what somebody waits for. Others would, but for flush.
                is_own = side.client.startswith("qbus")
                options["linger_ms"] = sdk_client.LINGER_MS if is_own else 0
                return sdk_client.run(
                    side.client, side.load, bootstrap=self._bootstrap, count=count, **options
                )
            return sdk_client.run_paced(
                side.client,
                bootstrap=self._bootstrap,
                topic=topic,
                count=self._count,
                size=self._size,
                rate=RATE,
            )

    def _run_on_fresh_topic(self, side: Side) -> dict[str, float]:
        with self._fresh_topic() as topic:
            result = self._run(side, topic)
            sent = self._count_of(side)
            if (stored := rdkafka.end_offset(self._bootstrap, topic)) != sent:
                raise RuntimeError(f"{side} sent {sent} records, {stored} were stored")
            return result

    def _count_of(self, side: Side) -> int:
        return max(self._count // _SLOW.get(side.client, 1), 1000)

    def _run(self, side: Side, topic: str) -> dict[str, float]:
        return sdk_client.run(
            side.client,
            side.load,
            bootstrap=self._bootstrap,
            topic=topic,
            count=self._count_of(side),
            size=self._size,
        )

    @contextmanager
    def _fresh_topic(self) -> Iterator[str]:
        topic = f"sdk-{next(_topics)}"
        rdkafka.create_topic(self._bootstrap, topic)
        yield topic
        rdkafka.delete_topic(self._bootstrap, topic)
