"""What security costs: TLS beside Kafka's, handshakes, access rules and quotas on every request.

``security`` is all of it. TLS and SCRAM are measured beside Apache Kafka in the same run. The cost
of rules and quotas is a ratio of Qbus with them to Qbus without, where 1.0 is no cost: in this
process, without sockets (``security-cost``), and over sockets, where the least of a request is its
share of the broker's processor time.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count as counter
from itertools import product
from pathlib import Path
from typing import Any, Final

from perf import rdkafka, requests
from perf.answering import least_us
from perf.report import Figure
from perf.requests import fetch_frame, produce_frame
from perf.secured import PASSWORD, USER, Secured, both_secured
from perf.servers import MEMORY, cpu_seconds
from qbus.broker.authorization import AccessControl
from qbus.broker.authorization.authorizer import AclAuthorizer
from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.peer import Peer, Principal
from qbus.broker.quotas import ClientQuotas
from qbus.config import ListenerInfo
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity
from qbus.records import build_batch
from qbus.security.acls import (
    WILDCARD,
    AclIndex,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from qbus.wire import ApiKey
from qbus.wire.messages import alter_client_quotas as alter
from qbus.wire.messages import create_acls
from tests.support.broker_process import BrokerProcess
from tests.support.data_plane import DataPlane
from tests.support.raw_client import RawClient

_topics = counter()

# TLS

_SMALL_BATCH: Final = {"batch.num.messages": "10", "linger.ms": "0"}
_CONNECTIONS: Final = (1, 4)


@dataclass(frozen=True)
class Case:
    """One way to load a broker over TLS: records of 100 bytes, in small or in large batches."""

    batches: str
    connections: int

    def __str__(self) -> str:
        several = "s" if self.connections > 1 else ""
        return f"{self.batches} batches, {self.connections} connection{several}"

    @property
    def producer(self) -> dict[str, str]:
        """The settings of the producer that make such batches."""
        return _SMALL_BATCH if self.batches == "small" else {}

    def records(self, scale: float) -> int:
        """How many records each connection sends and reads."""
        count = 200_000 if self.batches == "small" else 3_000_000
        return max(int(count * scale / self.connections), 1000)


def run(rounds: int, scale: float) -> list[Figure]:
    """TLS and SCRAM beside Kafka, and what rules and quotas cost."""
    figures: list[Figure] = []
    with both_secured() as servers:
        for batches, connections in product(("small", "large"), _CONNECTIONS):
            figures += _measure_tls(servers, Case(batches, connections), rounds, scale)
        figures += _measure_handshakes(servers, rounds, scale)
    return [*figures, *run_cost(rounds, scale)]


def _measure_tls(servers: list[Secured], case: Case, rounds: int, scale: float) -> list[Figure]:
    count = case.records(scale)
    volume = count * case.connections * _SIZE / 1e6
    figures = {
        "produce": (Figure(f"TLS: produce, {case}", "MB/s"), _per_cpu("produce", case)),
        "consume": (Figure(f"TLS: consume, {case}", "MB/s"), _per_cpu("consume", case)),
    }
    for turn in range(rounds + 1):
        for one in servers:
            topics = [f"tls-{next(_topics)}" for _ in range(case.connections)]
            for topic in topics:
                rdkafka.create_topic(one.server.bootstrap, topic)
            for load, (rate, per_cpu) in figures.items():
                client = {**one.client, **(case.producer if load == "produce" else {})}
                options: dict[str, Any] = {"size": _SIZE, "acks": "1"} if load == "produce" else {}
                before = cpu_seconds(one.server)
                seconds = rdkafka.run_together(
                    load, one.tls, topics, count=count, client=client, **options
                )
                spent = cpu_seconds(one.server) - before
                if turn:  # the first warms both up
                    rate.add(one.name, volume / seconds)
                    per_cpu.add(one.name, volume / max(spent, 0.01))
            for topic in topics:
                rdkafka.delete_topic(one.server.bootstrap, topic)
    return [figure for pair in figures.values() for figure in pair]


_SIZE: Final = 100


def _per_cpu(load: str, case: Case) -> Figure:
    return Figure(f"TLS: {load}, {case}", "MB per CPU second of the broker")


# SCRAM

_HANDSHAKE_SECONDS: Final = 5.0
_THREADS: Final = 4


def _measure_handshakes(servers: list[Secured], rounds: int, scale: float) -> list[Figure]:
    rate = Figure("SCRAM-SHA-256, 4096 iterations, a connection each", "handshakes/s")
    per_cpu = Figure("SCRAM-SHA-256, 4096 iterations", "handshakes per CPU second of the broker")
    for turn in range(rounds + 1):
        for one in servers:
            found = _shake_hands(one, max(_HANDSHAKE_SECONDS * scale, 0.5))
            if turn:
                rate.add(one.name, found["rate"])
                per_cpu.add(one.name, found["per_cpu_second"])
    return [rate, per_cpu]


def _shake_hands(one: Secured, seconds: float) -> dict[str, float]:
    words = [one.ports.sasl, seconds, _THREADS, USER, PASSWORD]
    command = [sys.executable, "-m", "perf.scram_load", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n", "the load failed"
        before = cpu_seconds(one.server)
        found = json.loads(process.stdout.readline())
        spent = cpu_seconds(one.server) - before
    return {
        "rate": found["handshakes"] / found["seconds"],
        "per_cpu_second": found["handshakes"] / max(spent, 0.01),
    }


# Rules and quotas

_BYTES: Final = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12}
_TIME: Final = {"request_percentage": 1e6}
_HUGE: Final = {**_BYTES, **_TIME}
_ALICE: Final = Principal("User", "alice")
_RULES: Final = 1000
_BATCHES: Final = ((1, 100), (160, 100))
_RUNS: Final = 300
_ROWS: Final = (
    requests.Row(64, 1, 100, 1),
    requests.Row(16, 160, 100, 1),
    requests.Row(16, 1000, 100, None),
)
_ROW_SECONDS: Final = 3.0


def run_cost(rounds: int, scale: float) -> list[Figure]:
    """Qbus with rules and quotas (as Qbus) beside Qbus without (as the peer)."""
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        figures = asyncio.run(_measure_in_process(Path(directory), rounds, scale))
    return figures + _measure_over_sockets(rounds, scale)


def _access() -> AccessControl:
    """One rule that lets alice write and read, among a thousand others'."""
    index = AclIndex()
    everything = Entry(str(_ALICE), WILDCARD, Operation.ALL, Permission.ALLOW)
    index.put(Pattern(ResourceType.TOPIC, "cost"), [everything])
    for number in range(_RULES):
        other = Entry(f"User:other-{number}", WILDCARD, Operation.READ, Permission.ALLOW)
        index.put(Pattern(ResourceType.TOPIC, f"other-{number}"), [other])
    return AccessControl(AclAuthorizer(index))


async def _measure_in_process(directory: Path, rounds: int, scale: float) -> list[Figure]:
    plane = DataPlane(directory, durability="memory")
    await plane.start()
    plane.broker.metrics = plane.metrics
    await plane.create("cost", len(_BATCHES))
    everybody = QuotaEntity(DEFAULT)
    off = _dispatcher(plane, ClientQuotas())
    ways = {
        "quotas of others": _dispatcher(plane, _quotas(QuotaEntity("somebody"), _HUGE)),
        "quotas of bytes": _dispatcher(plane, _quotas(everybody, _BYTES)),
        "quotas of time": _dispatcher(plane, _quotas(everybody, _TIME)),
        "quotas of bytes and time": _dispatcher(plane, _quotas(everybody, _HUGE)),
        "the same, for a client id": _dispatcher(plane, _quotas(QuotaEntity(None, DEFAULT), _HUGE)),
        "access rules": _dispatcher(plane, ClientQuotas(), _access()),
        "access rules and quotas": _dispatcher(plane, _quotas(everybody, _HUGE), _access()),
    }
    runs = max(int(_RUNS * scale), 20)
    figures = []
    for index, (records, size) in enumerate(_BATCHES):
        batch = build_batch([(None, b"x" * size, (), 1_700_000_000_000)] * records)
        frames = {
            f"produce {records} x {size} B": memoryview(
                bytearray(produce_frame("cost", index, batch, 1))
            )[4:],
            f"fetch {records} x {size} B": memoryview(fetch_frame("cost", index))[4:],
        }
        for what, frame in frames.items():
            for name, way in ways.items():
                figure = Figure(f"{what}: {name}", "us per request", lower_is_better=True)
                for _ in range(rounds):
                    figure.peer.append(least_us(runs, off, _new_peer(), frame))
                    figure.qbus.append(least_us(runs, way, _new_peer(), frame))
                figures.append(figure)
    await plane.stop()
    return figures


def _quotas(entity: QuotaEntity, values: Mapping[str, float]) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.set_quotas({entity: values})
    return quotas


def _dispatcher(
    plane: DataPlane, quotas: ClientQuotas, access: AccessControl | None = None
) -> Dispatcher:
    plane.broker.quotas = quotas
    return Dispatcher(plane.broker, access)


def _new_peer() -> Peer:
    return Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092), principal=_ALICE)


def _measure_over_sockets(rounds: int, scale: float) -> list[Figure]:
    figures = []
    with _three_brokers() as (plain, limited, ruled):
        for row in _ROWS:
            for name, server in (("quotas", limited), ("access rules", ruled)):
                figure = Figure(f"{row}: {name}", "requests per CPU second of the broker")
                for turn in range(rounds + 1):
                    seconds = max(_ROW_SECONDS * scale, 0.5)
                    off = requests.measure(plain, row, seconds)["per_cpu_second"]
                    on = requests.measure(server, row, seconds)["per_cpu_second"]
                    if turn:
                        figure.peer.append(off)
                        figure.qbus.append(on)
                figures.append(figure)
    return figures


@contextmanager
def _three_brokers() -> Iterator[list[BrokerProcess]]:
    """One without anything, one with quotas for everybody, one with access rules."""
    ruled = ("-o", "authorizer.class.name=acl", "-o", "allow.everyone.if.no.acl.found=true")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        brokers = [
            stack.enter_context(BrokerProcess(directory / name, *MEMORY.qbus, *options))
            for name, options in (("plain", ()), ("limited", ()), ("ruled", ruled))
        ]
        _set_quotas(brokers[1])
        _set_rules(brokers[2])
        yield brokers


def _set_quotas(server: BrokerProcess) -> None:
    entry = alter.EntryData(
        entity=[alter.EntityData(entity_type="user", entity_name=None)],
        ops=[alter.OpData(key=key, value=value) for key, value in _HUGE.items()],
    )
    request = alter.AlterClientQuotasRequest(entries=[entry])
    with RawClient(server.port) as client:
        (answer,) = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    if answer.error_code:
        raise RuntimeError(f"the quotas cannot be set: {answer.error_message}")


def _set_rules(server: BrokerProcess) -> None:
    """Let everybody use the topics of the load, among a thousand rules of others."""
    mine = _rule("requests-", PatternType.PREFIXED, "User:ANONYMOUS", Operation.ALL)
    others = [
        _rule(f"other-{number}", PatternType.LITERAL, f"User:other-{number}", Operation.READ)
        for number in range(_RULES)
    ]
    request = create_acls.CreateAclsRequest(creations=[mine, *others])
    with RawClient(server.port) as client:
        answer = client.ask(ApiKey.CREATE_ACLS, 2, request)
    if any(one.error_code for one in answer.results):
        raise RuntimeError("the access rules cannot be made")


def _rule(
    name: str, pattern: PatternType, principal: str, operation: Operation
) -> create_acls.AclCreation:
    return create_acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=WILDCARD,
        operation=operation,
        permission_type=Permission.ALLOW,
    )
