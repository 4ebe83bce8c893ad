"""Every form of the SDK's ``send`` beside confluent-kafka's ``produce``, the worst ratio first.

The clients take turns, each in a process of its own, with the options of :mod:`perf.sdk`; each must
have stored every record. A benchmark of one form would tune one form.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as counter
from pathlib import Path

from perf import before, rdkafka, sdk_client
from perf.forms import FORMS, Form, topic_names
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


def _compare(bootstrap: str, form: str, total: int, size: int, rounds: int) -> list[Figure]:
    peers = {face: face + sdk_client.BEFORE if before.checkout else _PEER for face in _FACES}
    clients = [*_FACES, *dict.fromkeys(peers.values())]
    turns = [
        {client: _send(bootstrap, client, form, total, size) for client in clients}
        for _ in range(rounds)
    ]
    return [
        Figure(
            f"{shown}, {form}, {size:,} B",
            unit,
            qbus=[turn[face][cost] for turn in turns],
            peer=[turn[peers[face]][cost] for turn in turns],
            lower_is_better=cost != "records_s",
        )
        for face, shown in _FACES.items()
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
def _fresh_topics(bootstrap: str, form: Form) -> Iterator[list[str]]:
    names = topic_names(form, f"forms-{next(_topics)}")
    with ExitStack() as topics:
        for name in names:
            rdkafka.create_topic(bootstrap, name, form.partitions)
            topics.callback(rdkafka.delete_topic, bootstrap, name)
        yield names
