"""`qbus mirror` between two datacenters: run, stopped, configured, shown; and groups that move."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from qbus.aio import Admin, Consumer
from qbus.clients import OffsetAndMetadata, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_command import MirrorCommand
from tests.support.waiting import until, wait_until

from .clusters import create, end_of, link, read, write

pytestmark = pytest.mark.integration


async def asked(*arguments: str) -> Any:
    """The JSON document that ``qbus mirror`` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qbus", "mirror", *arguments, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    stdout, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(stdout)


async def test_without_a_configuration_topics_are_copied_at_their_offsets(
    source: BrokerProcess, target: BrokerProcess
) -> None:
    await create(source, "plain", partitions=2)
    await write(source, "plain", [b"v%d" % n for n in range(500)], 1)
    options = link(source, target, "plain")
    mirror = MirrorCommand(*options)
    with mirror:
        await until(lambda: end_of(target, "a.plain", 1), 500)
        mirror.stop()
        await write(source, "plain", [b"later"] * 30, 1)
        (status,) = (await asked("status", *options))["links"]
        lags = {one["partition"]: one["lag_records"] for one in status["partitions"]}
        assert lags == {0: 0, 1: 30}
        assert status["totals"]["lag_bytes"] > 0
        assert status["totals"]["lag_seconds"] > 0
        mirror.start()
        await until(lambda: end_of(target, "a.plain", 1), 530)
    copies, originals = await read(target, "a.plain", 1), await read(source, "plain", 1)
    assert [one._replace(topic="plain") for one in copies] == originals


async def test_new_topics_and_partitions_do_not_wait_for_the_next_comparison(
    source: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    """The clusters are compared once an hour here; a glance at the topics is enough."""
    await create(source, "glanced-1")
    await write(source, "glanced-1", [b"v"], 0)
    file = tmp_path / "mirror.toml"
    file.write_text(
        'topics = ["glanced-.*"]\n'
        "topics_at_target = { discovery_interval_ms = 3600000 }\n"
        f'[target]\nidc = "b"\nbootstrap = "{target.bootstrap}"\n'
        f'[[source]]\nidc = "a"\nbootstrap = "{source.bootstrap}"\n'
    )
    with MirrorCommand("--config", str(file)):
        await until(lambda: end_of(target, "a.glanced-1"), 1)
        await create(source, "glanced-2")
        await write(source, "glanced-2", [b"v", b"w"], 0)
        await until(lambda: end_of(target, "a.glanced-2"), 2)
        async with Admin(source.bootstrap) as admin:
            await admin.create_partitions("glanced-1", 2)
        await write(source, "glanced-1", [b"v", b"w", b"x"], 1)
        await until(lambda: partitions_of(target, "a.glanced-1"), 2)
        await until(lambda: end_of(target, "a.glanced-1", 1), 3)


async def partitions_of(broker: BrokerProcess, topic: str) -> int:
    async with Admin(broker.bootstrap) as admin:
        return len((await admin.describe_topic(topic)).partitions)


async def test_a_file_is_read_again_on_sighup_and_a_bad_one_is_refused(
    source: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    for topic in ("first", "second"):
        await create(source, topic)
        await write(source, topic, [b"v"], 0)
    file = tmp_path / "mirror.toml"
    good = (
        f'topics = ["first"]\n[target]\nidc = "b"\nbootstrap = "{target.bootstrap}"\n'
        f'[[source]]\nidc = "a"\nbootstrap = "{source.bootstrap}"\n'
    )
    file.write_text(good)
    with MirrorCommand("--config", str(file)) as mirror:
        await until(lambda: end_of(target, "a.first"), 1)
        file.write_text(good + "topcis = 3\n")
        mirror.send_signal(signal.SIGHUP)
        wait_until(lambda: mirror.metric("configuration_refused"), "the bad one is refused")
        await write(source, "first", [b"w"], 0)
        await until(lambda: end_of(target, "a.first"), 2)
        file.write_text(good.replace('"first"', '"first", "second"'))
        mirror.send_signal(signal.SIGHUP)
        await until(lambda: end_of(target, "a.second"), 1)
        assert mirror.metric("configuration_refused") == 0


async def test_groups_go_on_where_they_were_and_never_ahead_of_the_data(
    source: BrokerProcess, target: BrokerProcess
) -> None:
    await create(source, "moving")
    here, there = TopicPartition("moving", 0), TopicPartition("a.moving", 0)
    await write(source, "moving", [b"v"] * 100, 0)
    options = link(source, target, "moving")
    with MirrorCommand(*options):
        await until(lambda: end_of(target, "a.moving"), 100)
    await write(source, "moving", [b"v"] * 50, 0)  # which the target does not have

    async def carry(*more: str) -> list[Any]:
        found: list[Any] = await asked("groups", *options, "--group", "movers", "--once", *more)
        return found

    async with Admin(source.bootstrap) as a, Admin(target.bootstrap) as b:

        async def committed() -> OffsetAndMetadata | None:
            return (await b.committed_offsets("movers")).get(there)

        await a.alter_group_offsets("movers", {here: OffsetAndMetadata(60, "note")})
        await carry()
        assert await committed() == OffsetAndMetadata(60, "note")
        await a.alter_group_offsets("movers", {here: 130})
        await carry()
        assert await committed() == OffsetAndMetadata(100)
        await a.alter_group_offsets("movers", {here: 20})
        (nothing,) = await carry()
        assert (nothing["offsets"], await committed()) == ([], OffsetAndMetadata(100))
        await carry("--backwards")
        assert await committed() == OffsetAndMetadata(20)
        await a.alter_group_offsets("movers", {here: 70})
        async with Consumer(target.bootstrap, group="movers", auto_commit=False) as consumer:
            consumer.subscribe(["a.moving"])
            while not await consumer.poll(1.0):
                pass
            (skipped,) = await carry()
            assert skipped["skipped"] == "it has members at the target"
            assert await committed() == OffsetAndMetadata(20)


async def test_a_group_may_come_back_to_where_the_topic_is_written(
    source: BrokerProcess, target: BrokerProcess
) -> None:
    await create(source, "home")
    await write(source, "home", [b"v"] * 10, 0)
    with MirrorCommand(*link(source, target, "home")):
        await until(lambda: end_of(target, "a.home"), 10)
    async with Admin(source.bootstrap) as a, Admin(target.bootstrap) as b:
        await b.alter_group_offsets("travellers", {TopicPartition("a.home", 0): 7})
        await asked(
            *("groups", "--source", f"b={target.bootstrap}", "--target", f"a={source.bootstrap}"),
            *("--topics", ".*", "--group", "travellers"),
        )
        found = await a.committed_offsets("travellers")
    assert found == {TopicPartition("home", 0): OffsetAndMetadata(7)}
