"""What delays cost those who have none: requests of plain topics, beside an earlier Qbus.

``run_enabled`` compares, within one broker, a topic with ``qbus.delay.enable=true`` that gets no
delayed record with a plain one. The load is the program in C of :mod:`perf.requests`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count as counter
from math import exp, log
from statistics import mean, stdev

from perf import rdkafka, requests
from perf.report import Figure
from perf.requests import Row
from perf.servers import MEMORY, both, cpu_seconds
from qbus.records import Compression
from tests.support.server_process import ServerProcess

_SECONDS = 1.2
_CONNECTIONS = 16
_topics = counter()

Side = tuple[str, ServerProcess, dict[str, str]]
"""A name, what serves it, and the configuration of its topics."""


@dataclass(frozen=True)
class Case:
    """One load, of batches in one compression."""

    row: Row
    codec: Compression = Compression.NONE

    def __str__(self) -> str:
        return f"{self.row}, {self.codec.name.lower()}"


_PRODUCED = ((1, 100), (160, 100), (1_000, 1_000))
_FETCHED = (
    Case(Row(_CONNECTIONS, 160, 100, None)),
    Case(Row(_CONNECTIONS, 1_000, 1_000, None)),
)


def cases(*codecs: Compression) -> tuple[Case, ...]:
    """Produce requests of each size in each of ``codecs``, and fetch requests."""
    produced = (
        Case(Row(_CONNECTIONS, records, size, 1), codec)
        for records, size in _PRODUCED
        for codec in codecs
    )
    return (*produced, *_FETCHED)


_ENABLED = {"qbus.delay.enable": "true"}


def run(rounds: int, scale: float) -> list[Figure]:
    """Plain topics of Qbus and of what ``--against`` names, each case in alternating pairs."""
    with both(MEMORY) as servers:
        sides: list[Side] = [(server.name, server, {}) for server in servers]
        few = cases(Compression.NONE, Compression.LZ4)
        return _measured(sides, few, rounds, scale)


def run_enabled(rounds: int, scale: float) -> list[Figure]:
    """Topics with delays enabled, and without; the latter are the peer."""
    with both(MEMORY) as (server, *_):
        sides: list[Side] = [("qbus", server, _ENABLED), ("plain", server, {})]
        return _measured(sides, cases(*Compression), rounds, scale)


def _measured(
    sides: Sequence[Side],
    measured: Sequence[Case],
    rounds: int,
    scale: float,
) -> list[Figure]:
    figures: list[Figure] = []
    for case in measured:
        rate = Figure(str(case), "requests/s")
        spent = Figure(str(case), "requests per CPU second")
        for turn in range(rounds + 1):
            for name, server, config in sides if turn % 2 else sides[::-1]:
                found = _measure(server, case, config, _SECONDS * scale)
                if turn:  # the first wakes both up
                    rate.add(name, found["rate"])
                    spent.add(name, found["per_cpu_second"])
        figures += [rate, spent]
    for unit in ("requests/s", "requests per CPU second"):
        pairs = [one for one in figures if one.unit == unit]
        figures.append(_overall(unit, pairs))
    return requests.worst_first(figures)


def _overall(unit: str, figures: Sequence[Figure]) -> Figure:
    """The geometric mean of all pairs beside 1, and in words how sure it is."""
    ratios = [
        log(mine / theirs)
        for figure in figures
        for mine, theirs in zip(figure.qbus, figure.peer, strict=True)
    ]
    if not ratios:
        return Figure("all", unit)
    error = 1.96 * stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    case = f"all, geometric mean of {len(ratios)} pairs, +- {error:.3f}"
    return Figure(case, f"ratio of {unit}", [exp(mean(ratios))], [1.0])


def _measure(
    server: ServerProcess, case: Case, config: dict[str, str], seconds: float
) -> dict[str, float]:
    topic = f"plain-{next(_topics)}"
    rdkafka.create_topic(server.bootstrap, topic, requests.PARTITIONS, 1, **config)
    try:
        load = requests.prepare(server.bootstrap, topic, case.row, case.codec)
        return requests.drive(load, case.row, seconds, partial(cpu_seconds, server))
    finally:
        rdkafka.delete_topic(server.bootstrap, topic)
