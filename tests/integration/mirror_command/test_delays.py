"""Delayed records behind a mirror: carried as they are, inert, and taken over when it ends."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbus import Admin, Producer
from qbus.clients import EARLIEST, TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.delayed_load import PARTITIONS, DelayedLoad, Reader, create_topic, finish
from tests.support.mirrored_delays import (
    Way,
    assert_equal,
    audit_of_end,
    batches_of,
    end_mirror,
    log_ends,
    told_by,
    wait_for_quiet,
    wait_until_copied,
)
from tests.support.waiting import wait_until

from .clusters import link

pytestmark = pytest.mark.integration

_DELAYS = {"qbus.delay.enable": "true"}


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with Way(tmp_path, "a", "b") as running:
        yield running


def status_of(source: BrokerProcess, target: BrokerProcess, topic: str) -> dict[int, Any]:
    """What ``qbus mirror status`` says of each partition."""

    async def ask() -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "qbus", "mirror", "status", "--json"),
            *link(source, target, topic),
            stdout=asyncio.subprocess.PIPE,
        )
        stdout, _ = await process.communicate()
        assert process.returncode == 0
        return stdout

    (found,) = json.loads(asyncio.run(ask()))["links"]
    return {one["partition"]: one for one in found["partitions"]}


def test_what_is_held_back_is_copied_and_shown(way: Way) -> None:
    source, target = way.source, way.target
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t", partitions=1, config=_DELAYS)
    with Producer(source.bootstrap) as producer:
        producer.send("t", b"visible").result()
        place = producer.send("t", b"far", b"k", delay="1h").result()
    before = status_of(source, target, "t")
    way.mirror("t")
    wait_until_copied(source, "t", target, "a.t", 1)
    assert before[0]["state"] == "waiting"
    assert status_of(source, target, "t")[0]["lag_records"] == 0
    with Producer(source.bootstrap) as producer:
        producer.send("t", b"at the very end", delay="2h").result()
        way.stop_mirrors()
        producer.send("t", b"and one more", delay="3h").result()
        assert status_of(source, target, "t")[0]["lag_records"] in {1, 2}
    way.mirrors[0].start()
    wait_until_copied(source, "t", target, "a.t", 1)
    wait_until(
        lambda: way.mirrors[0].metric("partitions", state="current") == 1, "that it is current"
    )
    status = status_of(source, target, "t")[0]
    assert (status["state"], status["lag_records"]) == ("current", 0)
    assert batches_of(source, "t", 0) == batches_of(target, "a.t", 0)
    with Admin(source.bootstrap) as here, Admin(target.bootstrap) as there:
        ours = here.describe_delayed([("t", 0)], limit=10)[TopicPartition("t", 0)]
        theirs = there.describe_delayed([("a.t", 0)], limit=10)[TopicPartition("a.t", 0)]
        assert theirs == ours
        assert theirs.pending == 3
        first_held = {TopicPartition("a.t", 0): place.offset}
        assert there.delete_records({("a.t", 0): log_ends(target, "a.t", 1)[0]}) == first_held
        assert log_ends(target, "a.t", 1) == log_ends(source, "t", 1)
    with Producer(target.bootstrap) as producer:
        for order in (
            lambda: producer.cancel("a.t", 0, place.offset),
            lambda: producer.cancel_key("a.t", b"k"),
            lambda: producer.reschedule("a.t", 0, place.offset, delay="1s"),
            lambda: producer.send("a.t", b"v", delay="1s").result(),
        ):
            with pytest.raises(ApiError, match="only a mirror writes to it") as refusal:
                order()
            assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def test_what_is_due_is_delivered_by_the_source_alone(way: Way) -> None:
    source, target = way.source, way.target
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t", partitions=1, config=_DELAYS)
    way.mirror("t")
    with Producer(source.bootstrap) as producer:
        producer.send("t", b"due soon", delay="1s").result()
        wait_until_copied(source, "t", target, "a.t", 1)
        for number in range(5):
            producer.send("t", b"%d" % number, delay="3s").result()
    wait_until_copied(source, "t", target, "a.t", 1)
    way.stop_mirrors()
    held = batches_of(target, "a.t", 0)
    wait_for_quiet(source, "t", 1)
    assert batches_of(target, "a.t", 0) == held, "a copy does nothing of its own"
    way.mirrors[0].start()
    wait_until_copied(source, "t", target, "a.t", 1)
    assert batches_of(source, "t", 0) == batches_of(target, "a.t", 0)


def test_two_mirrors_in_a_chain(tmp_path: Path) -> None:
    with Way(tmp_path, "a", "b", "c") as way:
        create_topic(way.source.bootstrap, "t", 1, segment_bytes="100000")
        way.mirror("t")
        load = DelayedLoad(way.source.bootstrap, "t")
        time.sleep(2)
        reader = Reader(way.source.bootstrap, "t")
        finish(load, reader)
        for name in ("b", "c"):
            wait_until_copied(way.source, "t", way.brokers[name], "a.t", PARTITIONS)
            assert_equal(way.source, "t", way.brokers[name], "a.t")


def test_a_mirror_that_ends_in_the_middle_of_deliveries(way: Way) -> None:
    source, target = way.source, way.target
    create_topic(source.bootstrap, "t", 1, segment_bytes="100000")
    way.mirror("t")
    load = DelayedLoad(source.bootstrap, "t")
    wait_until(lambda: log_ends(target, "a.t", 1)[0] >= 0, "the copy")
    reader = Reader(target.bootstrap, "a.t")
    time.sleep(4)
    end_mirror(target, "a.t")
    load.finish()
    wait_for_quiet(target, "a.t")
    reader.stop()
    reader.close()
    audit_of_end(source, "t", target, "a.t")
    assert ": mirror of a ended: delivers " in target.log_text()
    early = [
        number
        for number, times in reader.came.items()
        if number % 10 and times[0] < load.due[number]
    ]
    assert not early, f"early: {early[:10]} of {len(early)}"
    assert [number for number, times in reader.came.items() if len(times) > 1] == []


def test_a_mirror_that_starts_when_retention_has_carried(way: Way) -> None:
    source, target = way.source, way.target
    config = {**_DELAYS, "retention.ms": "1000", "segment.bytes": "2000", "segment.ms": "500"}
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t", partitions=1, config=config)
    with Producer(source.bootstrap) as producer:
        places = [producer.send("t", b"%d" % n, delay="10m").result() for n in range(20)]

        def is_carried() -> bool:
            producer.send("t", b"7777").result()
            with Admin(source.bootstrap) as admin:
                (start,) = admin.list_offsets({TopicPartition("t", 0): EARLIEST}).values()
            return start.offset > places[-1].offset

        wait_until(is_carried, "that retention has carried", 30, 0.2)
        way.mirror("t")
        wait_until_copied(source, "t", target, "a.t", 1)
        assert producer.cancel("t", 0, places[3].offset) is True
        wait_until_copied(source, "t", target, "a.t", 1)
        way.stop_mirrors()
    with Admin(target.bootstrap) as admin:
        (held,) = admin.describe_delayed([("a.t", 0)], limit=50).values()
    assert {one.original_offset for one in held.records} == {
        place.offset for place in places if place is not places[3]
    }
    end_mirror(target, "a.t", **{"retention.ms": "-1"})
    with Producer(target.bootstrap) as producer:
        for place in places:
            wanted = place is not places[3]
            assert producer.reschedule("a.t", 0, place.offset, delay="0") is wanted
    wait_until(
        lambda: {*told_by(batches_of(target, "a.t", 0)).visible} >= set(range(20)) - {3},
        "that all are delivered",
    )
    visible = told_by(batches_of(target, "a.t", 0)).visible
    assert {number: visible[number] for number in range(20)} == {n: int(n != 3) for n in range(20)}
