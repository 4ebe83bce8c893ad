"""Delayed records beside NATS JetStream's schedules and beanstalkd: rate, lateness, memory.

Each schedules the same messages of 100 bytes and hands them out when they are due: Qbus to
librdkafka, NATS to its Go client, beanstalkd (whole seconds only) to a client in Go. All keep them
on disk, in the page cache, unless ``fsync`` is named.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path
from typing import Protocol

import psutil

from perf import delay_load, rdkafka
from perf.peers import schedulers
from perf.report import Figure
from perf.servers import MEMORY
from tests.support.broker_process import BrokerProcess

SIZE = 100
RATES = (1_000, 20_000)
SECONDS = 15
SCHEDULED = 300_000
PENDING = 1_000_000
_HOUR_MS = 3_600_000
_MB = 1e6

_topics = counter()


class Load(Protocol):
    """Schedules so many messages, and waits for them."""

    def __call__(
        self, *, count: int, lead_ms: int, spread_ms: int, wait: bool = False
    ) -> dict[str, float]:
        """Results as those of :func:`perf.delay_load.load`."""


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure Qbus and each peer that there is, in turn."""
    peers = [None, "nats", "beanstalkd"]
    for name, reason in schedulers.missing().items():
        print(f"{name} is left out: {reason}", file=sys.stderr)
        peers.remove(name)
    figures: dict[tuple[str, str], Figure] = {}

    def add(name: str | None, case: str, unit: str, value: float, *, lower: bool = True) -> None:
        beside = [peer for peer in peers if peer] if name is None else [name]
        for peer in beside or ["nobody"]:
            known = figures.setdefault(
                (f"{case} beside {peer}", unit),
                Figure(f"{case} beside {peer}", unit, lower_is_better=lower),
            )
            known.add("qbus" if name is None else peer, value)

    for _ in range(rounds):
        for peer in peers:
            with _server(peer) as (load, process):
                _measure_scheduling(partial(add, peer), load, process, scale)
            with _server(peer) as (load, _):
                _measure_lateness(partial(add, peer), load)
        with _server(None) as (load, _), _server(None, header="delay") as (plain, _):
            options = {"count": int(SCHEDULED * scale), "lead_ms": _HOUR_MS, "spread_ms": 60_000}
            for one, name in ((load, "qbus"), (plain, "peer")):
                figure = figures.setdefault(
                    ("plain", "records/s"), Figure("scheduling beside plain produce", "records/s")
                )
                figure.add(name, options["count"] / one(**options)["seconds"])
        with _server(None, durable=True) as (load, _):
            found = _late(load, RATES[0])
            for quantile in ("p50", "p99"):
                case = f"lateness at {RATES[0]:,}/s, fsync"
                figure = figures.setdefault(
                    (case, quantile), Figure(case, f"{quantile} ms", lower_is_better=True)
                )
                figure.add("qbus", found[quantile])
    return list(figures.values())


def _measure_scheduling(
    add: "partial[None]", load: Load, process: psutil.Process, scale: float
) -> None:
    count = int(PENDING * scale)
    before = process.memory_info().rss
    found = load(count=count, lead_ms=_HOUR_MS, spread_ms=_HOUR_MS)
    grown = process.memory_info().rss - before
    add("scheduling", "records/s", count / found["seconds"], lower=False)
    add("memory, per million held back", "MB", grown / _MB * 1e6 / count)


def _measure_lateness(add: "partial[None]", load: Load) -> None:
    for rate in RATES:
        found = _late(load, rate)
        case = f"lateness at {rate:,}/s"
        add(case, "p50 ms", found["p50"])
        add(case, "p99 ms", found["p99"])
        add(case, "early", found["early"])
        assert found["received"] == rate * SECONDS, found


def _late(load: Load, rate: int) -> dict[str, float]:
    lead_ms = 4_000 + rate // 2  # for the scheduling itself
    return load(count=rate * SECONDS, lead_ms=lead_ms, spread_ms=SECONDS * 1000, wait=True)


@contextmanager
def _server(
    peer: str | None, header: str = "qbus-deliver-at", *, durable: bool = False
) -> Iterator[tuple[Load, psutil.Process]]:
    """A fresh server, warmed up."""
    if peer is not None:
        with schedulers.running(peer) as (address, process):
            load = partial(schedulers.run, peer, address, size=SIZE)
            load(count=1_000, lead_ms=1_000, spread_ms=500, wait=True)
            yield partial(_each, load), process
        return
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory), *(() if durable else MEMORY.qbus)) as broker,
    ):

        def on_a_topic(**options: object) -> dict[str, float]:
            topic = f"delay-{next(_topics)}"
            enabled = {"qbus.delay.enable": "true"} if header != "delay" else {}
            rdkafka.create_topic(broker.bootstrap, topic, delay_load.PARTITIONS, **enabled)
            return delay_load.run(
                broker.bootstrap, topic=topic, size=SIZE, header=header, **options
            )

        on_a_topic(count=1_000, lead_ms=1_000, spread_ms=500, wait=header != "delay")
        yield on_a_topic, psutil.Process(broker.pid)


def _each(load: "partial[dict[str, float]]", **options: object) -> dict[str, float]:
    return load(**{"wait": False, **options})
