"""Every call of the SDK x what may be wrong with the brokers: none waits in silence.

Within some seconds a call raises an error, or the log has a line, that names the thing and the
reason. All calls of a column run at once, each by a client of its own, whose id its lines begin
with.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qbus.aio import Admin, Consumer, Producer
from qbus.clients.admin.types import HangingTransaction, NewTopic, ScramUpsert
from qbus.clients.types import ConfigKind, OffsetAndMetadata, TopicPartition
from qbus.errors import CorruptBatch, ErrorCode
from qbus.security.acls import (
    Entry,
    Filter,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    Rule,
)
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port

SOON_S = 5.0
SLACK_S = 3.0
"""What a machine with two cores may take for sixty clients at once."""

END_MS = 6_000
"""When a call gives up: long after it has to have said why it waits."""

Call = Callable[[Any, str], Awaitable[object]]


def at(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def reading(topic: str) -> Rule:
    entry = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
    return Rule(Pattern(ResourceType.TOPIC, topic), entry)


async def send_and_wait_for(producer: Producer, topic: str) -> None:
    await (await producer.send(topic, b"1"))


async def send_many_and_wait_for(producer: Producer, topic: str) -> None:
    await (await producer.send_many(topic, [b"1", b"2"]))


async def send_arrow_and_wait_for(producer: Producer, topic: str) -> None:
    await (await producer.send_arrow(topic, pa.table({"value": [b"1"]})))


async def flush(producer: Producer, topic: str) -> None:
    await producer.send(topic, b"1")
    await producer.flush()


async def commit_transaction(producer: Producer, topic: str) -> None:
    await producer.begin_transaction()
    await producer.send(topic, b"1")
    await producer.commit_transaction()


async def abort_transaction(producer: Producer, topic: str) -> None:
    await producer.begin_transaction()
    await producer.send(topic, b"1")
    await producer.abort_transaction()


async def send_offsets(producer: Producer, topic: str) -> None:
    await producer.begin_transaction()
    await producer.send_offsets({(topic, 0): 1}, "some")


async def poll(consumer: Consumer, topic: str) -> None:
    consumer.subscribe([topic])
    while True:
        await consumer.poll(0.2)


async def poll_arrow(consumer: Consumer, topic: str) -> None:
    consumer.subscribe([topic])
    while True:
        await consumer.poll_arrow(0.2)


async def iterate(consumer: Consumer, topic: str) -> None:
    consumer.subscribe([topic])
    async for _ in consumer:
        pass


async def seek_past(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0, 0)])
    await consumer.seek_past(CorruptBatch("damaged", topic=topic, partition=0, offset=0))


async def seek_to_time(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0, 0)])
    await consumer.seek_to_time(at(topic), 1_000)


async def lag(consumer: Consumer, topic: str) -> None:
    consumer.assign([(topic, 0, 0)])
    await consumer.lag()


PRODUCER: dict[str, Call] = {
    "send": send_and_wait_for,
    "send_many": send_many_and_wait_for,
    "send_arrow": send_arrow_and_wait_for,
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, b"1"),
    "flush": flush,
    "cancel": lambda producer, topic: producer.cancel(topic, 0, 0),
    "cancel_key": lambda producer, topic: producer.cancel_key(topic, b"k"),
    "reschedule": lambda producer, topic: producer.reschedule(topic, 0, 0, delay=1),
    "partitions": lambda producer, topic: producer.partitions(topic),
    "init_transactions": lambda producer, _: producer.init_transactions(),
    "begin_transaction": lambda producer, _: producer.begin_transaction(),
    "commit_transaction": commit_transaction,
    "abort_transaction": abort_transaction,
    "send_offsets": send_offsets,
}
TRANSACTIONAL = {
    "init_transactions",
    "begin_transaction",
    "commit_transaction",
    "abort_transaction",
    "send_offsets",
}
CONSUMER: dict[str, Call] = {
    "poll": poll,
    "poll_arrow": poll_arrow,
    "__aiter__": iterate,
    "seek_past": seek_past,
    "seek_to_time": seek_to_time,
    "lag": lag,
    "offsets_for_times": lambda consumer, topic: consumer.offsets_for_times({at(topic): 1}),
    "beginning_offsets": lambda consumer, topic: consumer.beginning_offsets([at(topic)]),
    "end_offsets": lambda consumer, topic: consumer.end_offsets([at(topic)]),
    "partitions": lambda consumer, topic: consumer.partitions(topic),
    "commit": lambda consumer, topic: consumer.commit({at(topic): OffsetAndMetadata(1)}),
    "committed": lambda consumer, topic: consumer.committed([at(topic)]),
}
ADMIN: dict[str, Call] = {
    "create_topic": lambda admin, topic: admin.create_topic(topic),
    "create_topics": lambda admin, topic: admin.create_topics([NewTopic(topic)]),
    "delete_topic": lambda admin, topic: admin.delete_topic(topic),
    "delete_topics": lambda admin, topic: admin.delete_topics([topic]),
    "list_topics": lambda admin, _: admin.list_topics(),
    "describe_topic": lambda admin, topic: admin.describe_topic(topic),
    "describe_topics": lambda admin, topic: admin.describe_topics([topic]),
    "create_partitions": lambda admin, topic: admin.create_partitions(topic, 5),
    "alter_reassignments": lambda admin, topic: admin.alter_reassignments({at(topic): [1]}),
    "cancel_reassignments": lambda admin, topic: admin.cancel_reassignments([at(topic)]),
    "list_reassignments": lambda admin, _: admin.list_reassignments(),
    "elect_leaders": lambda admin, topic: admin.elect_leaders([at(topic)]),
    "eligible_leaders": lambda admin, topic: admin.eligible_leaders([topic]),
    "list_offsets": lambda admin, topic: admin.list_offsets({at(topic): -1}),
    "delete_records": lambda admin, topic: admin.delete_records({at(topic): 1}),
    "describe_producers": lambda admin, topic: admin.describe_producers([at(topic)]),
    "describe_delayed": lambda admin, topic: admin.describe_delayed([at(topic)]),
    "describe_queues": lambda admin, topic: admin.describe_queues("workers", [at(topic)]),
    "read_delayed": lambda admin, topic: admin.read_delayed(topic, 0, 0),
    "describe_config": lambda admin, topic: admin.describe_config(ConfigKind.TOPIC, topic),
    "describe_configs": lambda admin, topic: admin.describe_configs([(ConfigKind.TOPIC, topic)]),
    "alter_config": lambda admin, topic: admin.alter_config(
        ConfigKind.TOPIC, topic, set={"retention.ms": "5"}
    ),
    "describe_cluster": lambda admin, _: admin.describe_cluster(),
    "describe_log_dirs": lambda admin, _: admin.describe_log_dirs(),
    "alter_replica_log_dirs": lambda admin, topic: admin.alter_replica_log_dirs(
        1, {at(topic): "/elsewhere"}
    ),
    "list_transactions": lambda admin, _: admin.list_transactions(),
    "describe_transaction": lambda admin, _: admin.describe_transaction("none"),
    "describe_transactions": lambda admin, _: admin.describe_transactions(["none"]),
    "fence_producers": lambda admin, _: admin.fence_producers(["some"]),
    "find_hanging_transactions": lambda admin, topic: admin.find_hanging_transactions([at(topic)]),
    "abort_transaction": lambda admin, topic: admin.abort_transaction(
        HangingTransaction(topic, 0, 0, 1, 0, 0, 0)
    ),
    "list_groups": lambda admin, _: admin.list_groups(),
    "describe_group": lambda admin, _: admin.describe_group("none"),
    "share_group_offsets": lambda admin, _: admin.share_group_offsets("none"),
    "describe_groups": lambda admin, _: admin.describe_groups(["none"]),
    "delete_group": lambda admin, _: admin.delete_group("none"),
    "delete_groups": lambda admin, _: admin.delete_groups(["none"]),
    "remove_members": lambda admin, _: admin.remove_members("none"),
    "committed_offsets": lambda admin, topic: admin.committed_offsets("none", [at(topic)]),
    "group_offsets": lambda admin, topic: admin.group_offsets("none", [at(topic)]),
    "alter_group_offsets": lambda admin, topic: admin.alter_group_offsets("none", {at(topic): 1}),
    "reset_group_offsets": lambda admin, topic: admin.reset_group_offsets("none", [at(topic)]),
    "delete_group_offsets": lambda admin, topic: admin.delete_group_offsets("none", [at(topic)]),
    "create_acls": lambda admin, topic: admin.create_acls([reading(topic)]),
    "describe_acls": lambda admin, _: admin.describe_acls(),
    "delete_acls": lambda admin, topic: admin.delete_acls([Filter(name=topic)]),
    "describe_user_scram_credentials": lambda admin, _: admin.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda admin, _: admin.alter_user_scram_credentials(
        [ScramUpsert("alice", "secret")]
    ),
    "describe_client_quotas": lambda admin, _: admin.describe_client_quotas(),
    "alter_client_quotas": lambda admin, _: admin.alter_client_quotas(
        {(("user", "alice"),): {"producer_byte_rate": 1e6}}
    ),
}
UNANSWERED = {"close", "unsubscribe"}
"""Calls that end within their time whatever the brokers do."""

NAMES_NO_TOPIC = {
    "list_topics",
    "list_reassignments",
    "describe_cluster",
    "describe_log_dirs",
    "list_groups",
    "describe_group",
    "describe_groups",
    "share_group_offsets",
    "delete_group",
    "delete_groups",
    "remove_members",
    "init_transactions",
    "begin_transaction",
    "list_transactions",
    "describe_transaction",
    "describe_transactions",
    "fence_producers",
    "create_acls",
    "describe_acls",
    "delete_acls",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_client_quotas",
    "alter_client_quotas",
}
MAKES_IT = {"create_topic", "create_topics"}
KEEPS_ANY = {
    "commit",
    "committed",
    "committed_offsets",
    "group_offsets",
    "alter_group_offsets",
    "delete_group_offsets",
    "send_offsets",
}
"""Offsets of a group may be kept for, and asked of, topics that do not exist."""

KNOWN_ALREADY = {"partitions"}
"""Calls that a client may answer by what it has learned before."""


@pytest.mark.parametrize(
    ("client", "calls"), [(Producer, PRODUCER), (Consumer, CONSUMER), (Admin, ADMIN)]
)
def test_the_table_has_every_call(client: type, calls: dict[str, Call]) -> None:
    waiting = {
        name
        for name, member in inspect.getmembers(client, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert waiting - UNANSWERED == set(calls) - {"__aiter__"}


class Outcomes:
    """What each call ended with, and what the log said of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.errors: dict[str, str] = {}

    def told(self, name: str, *words: str) -> bool:
        """Whether an error or a line of the call has one of ``words``."""
        lines = [line for line in self._caplog.messages if line.startswith(f"{name} ")]
        lines += [self.errors.get(name, "")]
        return any(word in line for line in lines for word in words)


def made(name: str, bootstrap: str) -> AbstractAsyncContextManager[Any]:
    """The client that makes the call ``name``, which is its id, too."""
    kind, _, method = name.partition(".")
    if kind == "producer":
        return Producer(
            bootstrap,
            client_id=name,
            delivery_timeout_ms=END_MS,
            request_timeout_ms=END_MS,
            transactional_id=name if method in TRANSACTIONAL else None,
        )
    if kind == "admin":
        return Admin(bootstrap, client_id=name, request_timeout_ms=END_MS)
    group = "some" if method in {"commit", "committed"} else None
    return Consumer(bootstrap, client_id=name, group=group, request_timeout_ms=END_MS)


CALLS = {
    f"{kind}.{method}": call
    for kind, calls in (("producer", PRODUCER), ("consumer", CONSUMER), ("admin", ADMIN))
    for method, call in calls.items()
}


def calls_but(methods: Container[str]) -> list[str]:
    return [name for name in CALLS if name.partition(".")[2] not in methods]


async def nothing(_: object) -> None:
    pass


@asynccontextmanager
async def running(
    names: Sequence[str],
    bootstrap: str,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    before: Callable[[Any], Awaitable[None]] = nothing,
) -> AsyncIterator[Outcomes]:
    """Make all calls at once, each after ``before(client)``."""
    caplog.set_level(logging.WARNING)
    outcomes = Outcomes(caplog)

    async def run(name: str) -> None:
        async with made(name, bootstrap) as client:
            await before(client)
            try:
                await CALLS[name](client, topic)
            except Exception as error:
                outcomes.errors[name] = str(error)

    tasks = [asyncio.create_task(run(name)) for name in names]
    try:
        yield outcomes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def assert_told(
    outcomes: Outcomes, wanted: Iterable[str], *words: str, within_s: float = SOON_S + SLACK_S
) -> None:
    """Fail unless each of ``wanted`` has told of one of ``words`` in time."""
    deadline = time.monotonic() + within_s
    while silent := [name for name in wanted if not outcomes.told(name, *words)]:
        said = {name: outcomes.errors.get(name, "waits, or is done") for name in silent}
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.05)


async def test_no_broker(caplog: pytest.LogCaptureFixture) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    async with running(list(CALLS), bootstrap, "t", caplog) as outcomes:
        await assert_told(outcomes, CALLS, f"{bootstrap}: Connection refused")


async def test_a_web_server(http_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with running(list(CALLS), f"127.0.0.1:{http_port}", "t", caplog) as outcomes:
        await assert_told(outcomes, CALLS, "speaks HTTP, not Kafka's protocol")


async def test_a_port_that_never_answers(
    silent_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(list(CALLS), f"127.0.0.1:{silent_port}", "t", caplog) as outcomes:
        await assert_told(outcomes, CALLS, "does not answer")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, "-o", "auto.create.topics.enable=false") as running:
        yield running


async def test_a_topic_that_does_not_exist(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    names = calls_but(NAMES_NO_TOPIC | MAKES_IT | KEEPS_ANY)
    async with running(names, broker.bootstrap, "missing", caplog) as outcomes:
        await assert_told(outcomes, names, "missing")


async def test_a_topic_that_is_deleted_meanwhile(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that read on are told; the others have long had their answers."""
    names = [f"consumer.{reading}" for reading in ("poll", "poll_arrow", "__aiter__")]
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("passing")
        async with running(names, broker.bootstrap, "passing", caplog) as outcomes:
            await asyncio.sleep(0.5)
            assert not caplog.messages
            await admin.delete_topic("passing")
            await assert_told(outcomes, names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)


async def test_a_broker_that_is_killed_meanwhile(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Each client is connected when its broker dies, and asks then."""
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t")
    connected, killed = asyncio.Barrier(len(CALLS) + 1), asyncio.Event()

    async def connect(client: Any) -> None:
        await (client.list_topics() if isinstance(client, Admin) else client.partitions("t"))
        await connected.wait()
        await killed.wait()

    async with running(list(CALLS), broker.bootstrap, "t", caplog, connect) as outcomes:
        async with asyncio.timeout(30):
            await connected.wait()
        broker.kill()
        killed.set()
        asked = calls_but(KNOWN_ALREADY)
        await assert_told(outcomes, asked, f"{broker.bootstrap}: Connection refused")
