"""Every form of sending and reading with the SDK beside confluent-kafka's, the worst ratio first.

The clients take turns, each in a process of its own, with the options of :mod:`perf.sdk`; each must
have stored every record. A benchmark of one form would tune one form.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as counter
from pathlib import Path
from typing import Any

from perf import before, forms, rdkafka, sdk_client
from perf.forms import FORMS, READINGS, SHARING, Form, topic_names
from perf.report import Figure
from perf.secured import ProtectedQbus, protected_qbus
from qbus import Admin, ConfigKind

SIZES = {100: 1_000_000, 1000: 300_000}
_FACES = {"qbus": "send", "qbus_aio": "await send"}
_PEER = "confluent"
_UNITS = {"records_s": "records/s", "cpu_s": "CPU s per million", "memory_mb": "MB at most"}

_topics = counter()


def run(rounds: int, scale: float, names: tuple[str, ...] = ()) -> list[Figure]:
    """Send records of 100 B and of 1 KB in every form, or in those of these names."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        protected_qbus(Path(directory)) as server,
    ):
        for size, full in SIZES.items():
            total = max(int(full * scale), 1000)
            for name in names or FORMS:
                figures += _compare(server, name, total, size, rounds)
    return _worst_first(figures)


def run_reading(rounds: int, scale: float, names: tuple[str, ...] = ()) -> list[Figure]:
    """Read records of 100 B and of 1 KB in every form, or in those of these names."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        protected_qbus(Path(directory)) as server,
    ):
        for size, full in SIZES.items():
            total = max(int(full * scale), 1000)
            for name in names or READINGS:
                with _filled(server, READINGS[name].form, total, size) as topic:
                    figures += _compare_reading(server, name, topic, total, size, rounds)
    return _worst_first(figures)


def _compare(server: ProtectedQbus, form: str, total: int, size: int, rounds: int) -> list[Figure]:
    def run_side(client: str, _: str) -> dict[str, float]:
        return _send(server, client, form, total, size)

    sides = {(face, "send_form"): shown for face, shown in _FACES.items()}
    return _in_turn(sides, "send_form", f"{form}, {size:,} B", run_side, rounds)


def _compare_reading(
    server: ProtectedQbus, name: str, topic: str, total: int, size: int, rounds: int
) -> list[Figure]:
    reading = READINGS[name]

    def run_side(client: str, load: str) -> dict[str, float]:
        group = f"{topic}-{next(_topics)}"
        if reading.protocol in SHARING:
            _begin_at_start(server.broker.bootstrap, group)
        return sdk_client.run(
            client,
            load,
            topic=topic,
            count=total,
            size=size,
            form=reading.form,
            group=group if reading.protocol else "",
            protocol=reading.protocol,
            is_committed=reading.is_committed,
            **_where(server, FORMS[reading.form]),
        )

    sides = {
        (face, f"{load}_form"): f"{awaited}{load}"
        for face, awaited in (("qbus", ""), ("qbus_aio", "async "))
        for load in ("iterate", "poll")
    }
    return _in_turn(sides, "poll_form", f"{name}, {size:,} B", run_side, rounds)


def _where(server: ProtectedQbus, form: Form) -> dict[str, Any]:
    """Return where clients of a form connect, and how."""
    if form.is_secured:
        return {"bootstrap": server.address, "security": server.client}
    return {"bootstrap": server.broker.bootstrap}


def _begin_at_start(bootstrap: str, group: str) -> None:
    """Have a share group begin with the first record there is."""
    with Admin(bootstrap) as admin:
        admin.alter_config(ConfigKind.GROUP, group, set={"share.auto.offset.reset": "earliest"})


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


def _send(server: ProtectedQbus, client: str, form: str, total: int, size: int) -> dict[str, float]:
    options, bootstrap = FORMS[form], server.broker.bootstrap
    with _fresh_topics(bootstrap, options) as names:
        result = sdk_client.run(
            client,
            "send_form",
            topic=names[0],
            count=total,
            size=size,
            form=form,
            **_where(server, options),
        )
        stored = sum(rdkafka.end_offset(bootstrap, name, options.partitions) for name in names)
    if stored != forms.stored(options, total):
        raise RuntimeError(f"{client} sent {total} records ({form}), {stored} were stored")
    return result


@contextmanager
def _filled(server: ProtectedQbus, form: str, total: int, size: int) -> Iterator[str]:
    """A topic with records that were sent in a form."""
    with _fresh_topics(server.broker.bootstrap, FORMS[form]) as (topic,):
        where = _where(server, FORMS[form])
        options = {"topic": topic, "count": total, "size": size, "form": form, **where}
        sdk_client.run("qbus", "send_form", **options)
        yield topic


@contextmanager
def _fresh_topics(bootstrap: str, form: Form) -> Iterator[list[str]]:
    names = topic_names(form, f"forms-{next(_topics)}")
    with ExitStack() as topics:
        for name in names:
            rdkafka.create_topic(bootstrap, name, form.partitions)
            topics.callback(rdkafka.delete_topic, bootstrap, name)
        yield names
