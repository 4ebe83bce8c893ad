"""Delayed records beside NATS, beanstalkd and RocketMQ: rate, lateness, memory.

Each schedules the same messages of 100 bytes and hands them out when they are due: Qbus to
librdkafka, NATS to its Go client, beanstalkd (whole seconds only) to a client in Go, RocketMQ (a
precision of one second) to its Java client. All keep them on disk, in the page cache, unless
``fsync`` is named.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
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
# None is due before the measurement is over.
_PENDING = {
    "the coming hour": (3 * 60_000, 57 * 60_000),
    "a day": (3 * _HOUR_MS, 24 * _HOUR_MS),
}
# Long enough for the slowest to be told of all, with time to spare.
_LEAD_MS = {1_000: 6_000, 20_000: 35_000}

_topics = counter()


class Load(Protocol):
    """Schedules so many messages, and waits for them."""

    def __call__(
        self, *, count: int, lead_ms: int, spread_ms: int, wait: bool = False
    ) -> dict[str, float]:
        """Results as those of :func:`perf.delay_load.load`."""


def run(rounds: int, scale: float, peers: Sequence[str] = schedulers.NAMES) -> list[Figure]:
    """Measure Qbus and each of these peers that there is, in turn."""
    present = []
    for name in peers:
        reason = schedulers.missing(name)
        if reason is None:
            present.append(name)
        else:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    figures: dict[tuple[str, str], Figure] = {}

    def add(name: str | None, case: str, unit: str, value: float, *, lower: bool = True) -> None:
        beside = present if name is None else [name]
        for peer in beside or ["nobody"]:
            known = figures.setdefault(
                (f"{case} beside {peer}", unit),
                Figure(f"{case} beside {peer}", unit, lower_is_better=lower),
            )
            known.add("qbus" if name is None else peer, value)

    for _ in range(rounds):
        for peer in (None, *present):
            with _server(peer) as (load, process):
                _measure_scheduling(partial(add, peer), load, peer, process, scale)
            with _server(peer) as (load, _):
                _measure_lateness(partial(add, peer), load)
    return list(figures.values())


def run_by_itself(rounds: int, scale: float) -> list[Figure]:
    """Scheduling beside plain produce, and lateness with every record on stable storage."""
    ratio = Figure("scheduling beside plain produce", "records/s")
    case = f"lateness at {RATES[0]:,}/s, fsync"
    late = [Figure(case, f"{name} ms", lower_is_better=True) for name in ("p50", "p99")]
    options = {"count": int(SCHEDULED * scale), "lead_ms": _HOUR_MS, "spread_ms": 60_000}
    for _ in range(rounds):
        with _server(None) as (load, _), _server(None, header="delay") as (plain, _):
            for one, name in ((load, "qbus"), (plain, "peer")):
                ratio.add(name, options["count"] / one(**options)["seconds"])
        with _server(None, durable=True) as (load, _):
            found = _late(load, RATES[0])
            for figure, name in zip(late, ("p50", "p99"), strict=True):
                figure.add("qbus", found[name])
    return [ratio, *late]


def _measure_scheduling(
    add: "partial[None]", load: Load, peer: str | None, process: psutil.Process, scale: float
) -> None:
    count = int(PENDING * scale)
    for when, (lead_ms, spread_ms) in _PENDING.items():
        before = schedulers.memory(peer or "qbus", process)
        found = load(count=count, lead_ms=lead_ms, spread_ms=spread_ms)
        grown = schedulers.memory(peer or "qbus", process) - before
        add(f"scheduling, due within {when}", "records/s", count / found["seconds"], lower=False)
        add(f"memory, per million due within {when}", "MB", grown / _MB * 1e6 / count)


def _measure_lateness(add: "partial[None]", load: Load) -> None:
    for rate in RATES:
        found = _late(load, rate)
        case = f"lateness at {rate:,}/s"
        add(case, "p50 ms", found["p50"])
        add(case, "p99 ms", found["p99"])
        add(case, "early", found["early"])


def _late(load: Load, rate: int) -> dict[str, float]:
    found = load(count=rate * SECONDS, lead_ms=_LEAD_MS[rate], spread_ms=SECONDS * 1000, wait=True)
    assert found["received"] == rate * SECONDS, found
    assert found["spare_ms"] > 0, f"it was still scheduling when the first was due: {found}"
    return found


@contextmanager
def _server(
    peer: str | None, header: str = "qbus-deliver-at", *, durable: bool = False
) -> Iterator[tuple[Load, psutil.Process]]:
    """A fresh server, warmed up."""
    if peer is not None:
        with schedulers.running(peer) as (address, process):
            load = partial(schedulers.run, peer, address, size=SIZE)
            load(count=1_000, lead_ms=3_000, spread_ms=500, wait=True)
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
