"""A target that is Apache Kafka: records are produced anew, once each, and tell their origin."""

from collections.abc import Iterator

import pytest

from perf.peers import kafka
from qbus.aio import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_command import MirrorCommand

from .clusters import end_of, link, read, write
from .waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("a")) as broker:
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.KafkaProcess]:
    reason = kafka.missing()
    if reason is not None:
        pytest.skip(reason)
    with kafka.KafkaProcess(tmp_path_factory.mktemp("b"), heap="512M") as broker:
        yield broker


async def create(source: BrokerProcess, topic: str, partitions: int = 1) -> None:
    async with Admin(source.bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions, config={"retention.ms": "-1"})


async def test_records_are_produced_once_over_restarts_and_growth(
    source: BrokerProcess, target: kafka.KafkaProcess
) -> None:
    await create(source, "orders", 2)
    await write(source, "orders", [b"v%d" % n for n in range(500)], 1)
    mirror = MirrorCommand(*link(source, target, "orders"))
    with mirror:
        await until(lambda: end_of(target, "a.orders", 1), 500)
        assert mirror.metric("reproducing") == 1
    await write(source, "orders", [b"w%d" % n for n in range(300)], 1)
    with mirror:
        await until(lambda: end_of(target, "a.orders", 1), 800)
        mirror.kill()
    await write(source, "orders", [b"x%d" % n for n in range(200)], 1)
    async with Admin(source.bootstrap) as admin:
        await admin.create_partitions("orders", 3)
    await write(source, "orders", [b"new"], 2)
    with MirrorCommand(*link(source, target, "orders")):
        await until(lambda: end_of(target, "a.orders", 1), 1000)
        await until(lambda: end_of(target, "a.orders", 2), 1)
    expected = await read(source, "orders", 1)
    found = await read(target, "a.orders", 1)
    assert [(one.key, one.value, one.timestamp) for one in found] == [
        (one.key, one.value, one.timestamp) for one in expected
    ]
    assert [one.headers for one in found] == [
        (*one.headers, ("qbus-origin", b"a.orders"), ("qbus-offset", b"%d" % one.offset))
        for one in expected
    ]
