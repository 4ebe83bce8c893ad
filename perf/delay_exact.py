"""A million records due at random within a minute, audited: each once, in order, none early.

They come from plain clients that know nothing of delays but the header: librdkafka, Kafka's Java
client, franz-go. One in a hundred is due beyond thirty days, and must not come. A plain librdkafka
consumer reads the rest.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import qbus
from perf import rdkafka
from perf.delay_exact_load import FAR_EVERY, FAR_MS, PARTITIONS, Load
from perf.peers import java, kafka, schedulers
from perf.report import Figure
from perf.servers import MEMORY, cpu_seconds
from tests.support.broker_process import BrokerProcess

COUNT = 1_000_000
SPREAD_MS = 60_000
SIZE = 100
_LEAD_MS = 10_000  # for the sending itself
_WARM_UP = 1_000
_JAVA_SENDER = Path(__file__).parent / "peers" / "schedulers" / "KafkaSender.java"


SENDERS = ("librdkafka", "java", "franz-go")


def run(rounds: int, scale: float, names: Sequence[str] = SENDERS) -> list[Figure]:
    """Audit what each sender sends; raise AssertionError for a record lost, repeated or early."""
    figures: dict[tuple[str, str], Figure] = {}
    for _ in range(rounds):
        for sender, command in _senders(names).items():
            for (case, unit), value in _audited(command, int(COUNT * scale)).items():
                name = f"{sender}: {case}"
                rate = unit == "records/s"
                figure = figures.setdefault(
                    (name, unit), Figure(name, unit, lower_is_better=not rate)
                )
                figure.add("qbus", value)
    return list(figures.values())


def _senders(names: Sequence[str]) -> dict[str, Callable[[str, Load], list[str]]]:
    """The command lines of those that can run here."""
    senders: dict[str, Callable[[str, Load], list[str]]] = {
        "librdkafka": _librdkafka,
        "java": _java,
        "franz-go": _franz_go,
    }
    missing = {"java": kafka.missing(), "franz-go": _missing_go()}
    for name, reason in missing.items():
        if reason is not None:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            del senders[name]
    return {name: senders[name] for name in names if name in senders}


def _missing_go() -> str | None:
    return None if shutil.which("go") else "there is no go to build it with"


def _librdkafka(bootstrap: str, load: Load) -> list[str]:
    return [sys.executable, "-m", "perf.delay_exact_load", "send", bootstrap, json.dumps(load)]


def _java(bootstrap: str, load: Load) -> list[str]:
    # Only what is not the program's own: java runs a source file after its options.
    options = java.command("", heap="1G")[1:-1]
    return ["java", *options, str(_JAVA_SENDER), bootstrap, *load.words()]


def _franz_go(bootstrap: str, load: Load) -> list[str]:
    return [schedulers.program(), "send", bootstrap, *load.words()]


def _audited(command: Callable[[str, Load], list[str]], count: int) -> dict[tuple[str, str], float]:
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory), *MEMORY.qbus) as broker,
    ):
        # The first wakes what is loaded at first use, in the broker.
        for topic, amount in (("warm", _WARM_UP), ("audited", count)):
            rdkafka.create_topic(
                broker.bootstrap, topic, PARTITIONS, **{"qbus.delay.enable": "true"}
            )
            start = time.time_ns() // 1_000_000 + (_LEAD_MS if amount == count else 5_000)
            spread = SPREAD_MS if amount == count else 1_000
            load = Load(topic, PARTITIONS, amount, start, spread, FAR_EVERY, FAR_MS, SIZE)
            before = cpu_seconds(broker)
            sent, found = _sent_and_read(command(broker.bootstrap, load), broker.bootstrap, load)
            spent = cpu_seconds(broker) - before
        with qbus.Admin(broker.bootstrap) as admin:
            places = [("audited", index) for index in range(PARTITIONS)]
            held = sum(one.pending for one in admin.describe_delayed(places).values())
    far = -(-count // FAR_EVERY)
    wrong = {name: found[name] for name in ("missing", "twice", "early", "unexpected")}
    if sent["spare_ms"] > 0:  # else some were sent after others that are due later were delivered
        wrong["disordered"] = found["disordered"]
    assert not any(wrong.values()), {**wrong, "held back": held, "due later": far}
    assert held == far, f"{held} are held back, not {far}"
    seconds = (_LEAD_MS + SPREAD_MS) / 1000
    return {
        ("sending", "records/s"): count / sent["seconds"],
        ("sent before the first was due", "ms"): sent["spare_ms"],
        ("lost, twice or early", "records"): 0,
        ("held back beyond 30 days", "records"): held,
        ("out of order in its partition", "records"): found["disordered"],
        ("out of order in its partition, at most", "ms"): found["disorder_ms"],
        ("late, p50", "ms"): found["p50"],
        ("late, p99", "ms"): found["p99"],
        ("late, at most", "ms"): found["most"],
        ("broker, of a core", "s/s"): spent / seconds,
    }


def _sent_and_read(
    command: list[str], bootstrap: str, load: Load
) -> tuple[dict[str, float], dict[str, float]]:
    reading = [sys.executable, "-m", "perf.delay_exact_load", "read", bootstrap, json.dumps(load)]
    with subprocess.Popen(reading, stdout=subprocess.PIPE) as reader:
        try:
            sent = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300)
            output, _ = reader.communicate(timeout=600)
        except BaseException:
            reader.kill()
            raise
    return json.loads(sent.stdout), json.loads(output)
