"""A target that is Apache Kafka: records are reproduced, once each, and tell their origin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.aio import Admin
from qbus.clients import TopicPartition
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.lag_probe import LagProbe
from qbus.clients.mirror.status import LinkStatus, PartitionState, Trouble
from qbus.clients.net.cluster import Cluster
from qbus.clock import SystemClock
from tests.integration.mirror_command.clusters import create, end_of, read, write
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_command import MirrorCommand
from tests.support.server_process import ServerProcess
from tests.support.waiting import until, wait_until

from .conftest import with_kafka
from .servers import Server

pytestmark = with_kafka


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """IDC a."""
    settings = ("group.min.session.timeout.ms=500", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(
        tmp_path_factory.mktemp("a"), "-o", settings[0], "-o", settings[1]
    ) as broker:
        yield broker


def mirror(
    source: BrokerProcess, target: ServerProcess, directory: Path, topic: str
) -> MirrorCommand:
    """A mirror with a short session: others take over soon after it is killed."""
    file = directory / "mirror.toml"
    file.write_text(
        f'topics = ["{topic}"]\n[target]\nidc = "b"\nbootstrap = "{target.bootstrap}"\n'
        f'[[source]]\nidc = "a"\nbootstrap = "{source.bootstrap}"\n'
        "[transfer]\nsession_timeout_ms = 1000\n"
        "[topics_at_target]\ndiscovery_interval_ms = 500\n"
    )
    return MirrorCommand("--config", str(file))


async def surveyed(source: BrokerProcess, target: ServerProcess, topic: str) -> LinkStatus:
    """The progress of the target, as ``qbus mirror status`` measures it."""
    config = LinkConfig("a", "b", source.bootstrap, target.bootstrap, (topic,))
    here = Cluster(source.bootstrap, "test", 30.0)
    there = Cluster(target.bootstrap, "test", 30.0)
    try:
        return await LagProbe(config, here, there, SystemClock()).measure()
    finally:
        await here.close()
        await there.close()


async def test_records_are_produced_once_over_a_kill_a_restart_and_growth(
    source: BrokerProcess, server: Server, tmp_path: Path
) -> None:
    await create(source, "orders", partitions=2)
    await write(source, "orders", [b"v%d" % n for n in range(500)], 1)
    running = mirror(source, server.process, tmp_path, "orders")
    with running:
        await until(lambda: end_of(server.process, "a.orders", 1), 500)
        wait_until(lambda: running.metric("reproducing") == 1, "it tells what is weaker")
        await write(source, "orders", [b"w%d" % n for n in range(300)], 1)
        running.kill()
        await write(source, "orders", [b"x%d" % n for n in range(200)], 1)

        async def is_seen() -> bool:
            status = await surveyed(source, server.process, "orders")
            behind = {one.partition: one.lag_records for one in status.partitions}
            missing = 1000 - await end_of(server.process, "a.orders", 1)
            return status.reproduces and behind[1] == missing

        await until(is_seen, True)
        running.start()
        await until(lambda: end_of(server.process, "a.orders", 1), 1000)
        async with Admin(source.bootstrap) as admin:
            await admin.create_partitions("orders", 3)
        await write(source, "orders", [b"new"], 2)
        await until(lambda: end_of(server.process, "a.orders", 2), 1)
    status = await surveyed(source, server.process, "orders")
    assert {one.state for one in status.partitions} == {PartitionState.CURRENT}
    expected = await read(source, "orders", 1)
    found = await read(server.process, "a.orders", 1)
    assert [(one.key, one.value, one.timestamp) for one in found] == [
        (one.key, one.value, one.timestamp) for one in expected
    ]
    async with Admin(source.bootstrap) as admin:
        topic_id = str((await admin.describe_topic("orders")).topic_id).encode()
    assert [one.headers for one in found] == [
        (
            *one.headers,
            ("qbus-origin", b"a.orders"),
            ("qbus-offset", b"%d" % one.offset),
            ("qbus-topic-id", topic_id),
        )
        for one in expected
    ]


@pytest.mark.nightly
async def test_processes_share_partitions_and_take_over_those_of_one_that_dies(
    source: BrokerProcess, server: Server, tmp_path: Path
) -> None:
    await create(source, "shared", partitions=4)
    one, two = (mirror(source, server.process, tmp_path, "shared") for _ in range(2))

    async def write_everywhere() -> None:
        for index in range(4):
            await write(source, "shared", [b"v%d" % n for n in range(250)], index)

    async def ends() -> list[int]:
        return [await end_of(server.process, "a.shared", index) for index in range(4)]

    with two, one:
        for process in (one, two):
            wait_until(lambda one=process: one.metric("partitions") == 2, "each has its half")  # type: ignore[misc]
        await write_everywhere()
        await until(ends, [250] * 4)
        one.kill()
        await write_everywhere()
        await until(ends, [500] * 4)
        one.start()
        wait_until(lambda: one.metric("partitions") == 2, "it has its half again")
        await write_everywhere()
        await until(ends, [750] * 4)
    for index in range(4):
        found = await read(server.process, "a.shared", index)
        assert [dict(copy.headers)["qbus-offset"] for copy in found] == [
            b"%d" % offset for offset in range(750)
        ]


async def test_a_topic_that_is_no_copy_and_a_source_that_lost_data_are_left_alone(
    source: BrokerProcess, server: Server, tmp_path: Path
) -> None:
    await create(source, "taken", partitions=2)
    await write(source, "taken", [b"v"], 0)
    await create(server.process, "a.taken", partitions=2)
    await until(lambda: end_of(server.process, "a.taken", 1), 0)
    await write(server.process, "a.taken", [b"somebody else's"], 0)
    stamp = [("qbus-origin", b"a.taken"), ("qbus-offset", b"41")]
    await write(server.process, "a.taken", [b"copied before the source lost it"], 1, stamp)
    with mirror(source, server.process, tmp_path, "taken") as running:
        wait_until(lambda: running.metric("partitions", state="stopped") == 2, "both are stopped")
        assert running.metric("trouble", trouble="unrelated_topic") == 1
        assert running.metric("trouble", trouble="source_lost_data") == 1
    assert await end_of(server.process, "a.taken", 0) == 1
    assert await end_of(server.process, "a.taken", 1) == 1
    status = await surveyed(source, server.process, "taken")
    troubles = {one.partition: one.trouble for one in status.partitions}
    assert troubles == {0: Trouble.UNRELATED_TOPIC, 1: Trouble.SOURCE_LOST_DATA}


async def test_groups_are_not_carried_where_offsets_are_others(
    source: BrokerProcess, server: Server, tmp_path: Path
) -> None:
    await create(source, "still")
    await write(source, "still", [b"v"] * 5, 0)
    async with Admin(source.bootstrap) as a, Admin(server.process.bootstrap) as b:
        await a.alter_group_offsets("stayers", {TopicPartition("still", 0): 3})
        with mirror(source, server.process, tmp_path, "still"):
            await until(lambda: end_of(server.process, "a.still"), 5)
        assert await b.committed_offsets("stayers") == {}


async def test_a_topic_created_anew_is_not_taken_for_the_old_one(
    source: BrokerProcess, server: Server, tmp_path: Path
) -> None:
    await create(source, "anew")
    await write(source, "anew", [b"old"] * 5, 0)
    with mirror(source, server.process, tmp_path, "anew"):
        await until(lambda: end_of(server.process, "a.anew"), 5)
    async with Admin(source.bootstrap) as admin:
        await admin.delete_topic("anew")
    await create(source, "anew")
    await write(source, "anew", [b"new"] * 50, 0)
    with mirror(source, server.process, tmp_path, "anew") as running:
        wait_until(lambda: running.metric("trouble", trouble="source_recreated") == 1, "it is told")
    assert await end_of(server.process, "a.anew") == 5
    (status,) = (await surveyed(source, server.process, "anew")).partitions
    assert status.trouble is Trouble.SOURCE_RECREATED
