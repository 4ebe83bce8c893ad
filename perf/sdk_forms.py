"""Every form of sending and reading with the SDK beside confluent-kafka's, the worst ratio first.

The clients take turns, each in a process of its own, with the options of :mod:`perf.sdk`; each must
have stored every record. A benchmark of one form would tune one form.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as counter
from pathlib import Path

from perf import before, rdkafka, sdk_client
from perf.forms import FORMS, READINGS, Form, topic_names
from perf.report import Figure
from perf.servers import MEMORY
from tests.support.broker_process import BrokerProcess

SIZES = {100: 1_000_000, 1000: 300_000}
_FACES = {"qbus": "send", "qbus_aio": "await send"}
_PEER = "confluent"
_UNITS = {"records_s": "records/s", "cpu_s": "CPU s per million", "memory_mb": "MB at most"}

_topics = counter()


def run(rounds: int, scale: float) -> list[Figure]:
    """Send records of 100 B and of 1 KB in every form."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
    ):
        for size, full in SIZES.items():
            total = max(int(full * scale), 1000)
            for name in FORMS:
                figures += _compare(broker.bootstrap, name, total, size, rounds)
    return _worst_first(figures)


def run_reading(rounds: int, scale: float) -> list[Figure]:
    """Read records of 100 B and of 1 KB in every form."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
    ):
        for size, full in SIZES.items():
            total = max(int(full * scale), 1000)
            for name, reading in READINGS.items():
                with _filled(broker.bootstrap, reading.form, total, size) as topic:
                    figures += _compare_reading(broker.bootstrap, name, topic, total, size, rounds)
    return _worst_first(figures)


def _compare(bootstrap: str, form: str, total: int, size: int, rounds: int) -> list[Figure]:
    def run_side(client: str, _: str) -> dict[str, float]:
        return _send(bootstrap, client, form, total, size)

    sides = {(face, "send_form"): shown for face, shown in _FACES.items()}
    return _in_turn(sides, "send_form", f"{form}, {size:,} B", run_side, rounds)


def _compare_reading(
    bootstrap: str, reading: str, topic: str, total: int, size: int, rounds: int
) -> list[Figure]:
    form, in_group = READINGS[reading]

    def run_side(client: str, load: str) -> dict[str, float]:
        group = f"{topic}-{next(_topics)}"
        return sdk_client.run(
            client,
            load,
            bootstrap=bootstrap,
            topic=topic,
            count=total,
            size=size,
            form=form,
            group=group if in_group else "",
        )

    sides = {
        (face, f"{load}_form"): f"{awaited}{load}"
        for face, awaited in (("qbus", ""), ("qbus_aio", "async "))
        for load in ("iterate", "poll")
    }
    return _in_turn(sides, "poll_form", f"{reading}, {size:,} B", run_side, rounds)


def _in_turn(
    sides: dict[tuple[str, str], str],
    peer_load: str,
    case: str,
    run_side: Callable[[str, str], dict[str, float]],
    rounds: int,
) -> list[Figure]:
    """Measure all sides and their peer in turn."""

    def peer_of(side: tuple[str, str]) -> tuple[str, str]:
        face, load = side
        return (face + sdk_client.BEFORE, load) if before.checkout else (_PEER, peer_load)

    every = dict.fromkeys((*sides, *map(peer_of, sides)))
    turns = [{side: run_side(*side) for side in every} for _ in range(rounds)]
    return [
        Figure(
            f"{shown}, {case}",
            unit,
            qbus=[turn[side][cost] for turn in turns],
            peer=[turn[peer_of(side)][cost] for turn in turns],
            lower_is_better=cost != "records_s",
        )
        for side, shown in sides.items()
        for cost, unit in _UNITS.items()
    ]


def _worst_first(figures: list[Figure]) -> list[Figure]:
    """Sort the rates from the worst ratio to the best; then the costs."""
    return sorted(
        figures,
        key=lambda figure: (
            figure.lower_is_better,
            figure.unit,
            (figure.ratio or 0.0) * (-1 if figure.lower_is_better else 1),
        ),
    )


def _send(bootstrap: str, client: str, form: str, total: int, size: int) -> dict[str, float]:
    options = FORMS[form]
    with _fresh_topics(bootstrap, options) as names:
        result = sdk_client.run(
            client,
            "send_form",
            bootstrap=bootstrap,
            topic=names[0],
            count=total,
            size=size,
            form=form,
        )
        stored = sum(rdkafka.end_offset(bootstrap, name, options.partitions) for name in names)
    if stored != total:
        raise RuntimeError(f"{client} sent {total} records ({form}), {stored} were stored")
    return result


@contextmanager
def _filled(bootstrap: str, form: str, total: int, size: int) -> Iterator[str]:
    """A topic with records that were sent in a form."""
    with _fresh_topics(bootstrap, FORMS[form]) as (topic,):
        options = {"topic": topic, "count": total, "size": size, "form": form}
        sdk_client.run("qbus", "send_form", bootstrap=bootstrap, **options)
        yield topic


@contextmanager
def _fresh_topics(bootstrap: str, form: Form) -> Iterator[list[str]]:
    names = topic_names(form, f"forms-{next(_topics)}")
    with ExitStack() as topics:
        for name in names:
            rdkafka.create_topic(bootstrap, name, form.partitions)
            topics.callback(rdkafka.delete_topic, bootstrap, name)
        yield names
