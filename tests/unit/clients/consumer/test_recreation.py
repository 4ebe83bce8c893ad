"""A topic is deleted and created again while a consumer reads it: the new one is read anew."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from qbus.clients import Consumer, NoOffset, TopicPartition
from qbus.clients.net.versions import SPOKEN
from qbus.records import build_batch
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker
from tests.support.fake_log import PartitionLog
from tests.support.polling import flat

BY_ID = {**SPOKEN, ApiKey.FETCH: (4, 17)}
BY_NAME = SPOKEN
OLD, NEW = [b"%d" % n for n in range(5)], [b"new %d" % n for n in range(9)]


def store(broker: FakeBroker, values: list[bytes]) -> None:
    broker.logs["t", 0].append(bytes(build_batch([(None, value, (), 5) for value in values])))
    broker._appended.set()


def broker_of(versions: Mapping[int, tuple[int, int]] = BY_ID) -> FakeBroker:
    broker = FakeBroker({"t": 1}, versions=versions)
    broker.ids["t"] = b"1" * 16
    store(broker, OLD)
    return broker


def recreate(broker: FakeBroker) -> None:
    """Put another topic in the place of "t", with records where the former one ended."""
    broker.ids["t"] = b"2" * 16
    broker.logs["t", 0] = PartitionLog()
    store(broker, NEW)


def consumer_of(broker: FakeBroker, **options: Any) -> Consumer:
    options.setdefault("offset_reset", "earliest")
    return Consumer(broker.bootstrap, fetch_max_wait_ms=20, **options)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    for _ in range(500):
        found += [record.value for record in flat(await consumer.poll(0.05))]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records")


@pytest.mark.parametrize("group", [None, "g"])
async def test_the_new_topic_is_read_from_its_start(
    group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_of() as broker, consumer_of(broker, group=group) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        with caplog.at_level(logging.WARNING):
            recreate(broker)
            assert await read(consumer, len(NEW)) == NEW
            assert await consumer.poll(0.1) == []
        assert caplog.messages == [
            "topic t was deleted and created again: reading starts over (offset_reset=earliest)"
        ]


async def test_a_broker_without_ids_in_fetches_is_believed_by_its_metadata() -> None:
    async with broker_of(BY_NAME) as broker, consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        broker.logs["t", 0] = PartitionLog()
        recreate(broker)
        await consumer._cluster.refresh(["t"])
        assert await read(consumer, len(NEW)) == NEW


async def test_records_of_the_former_topic_that_were_not_read_go() -> None:
    async with broker_of() as broker, consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert [r.value for r in flat(await consumer.poll(5.0, max_records=1))] == OLD[:1]
        recreate(broker)
        await consumer._cluster.refresh(["t"])
        consumer._fetcher.start()
        assert await read(consumer, len(NEW)) == NEW


async def test_without_a_reset_policy_it_is_an_error() -> None:
    async with broker_of() as broker, consumer_of(broker, offset_reset="none") as consumer:
        consumer.assign([("t", 0, 0)])
        assert await read(consumer, len(OLD)) == OLD
        recreate(broker)
        with pytest.raises(NoOffset):
            await read(consumer, 1)


async def test_what_was_committed_in_the_former_topic_is_not_committed_again() -> None:
    async with broker_of() as broker, consumer_of(broker, group="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        broker.committed.clear()
        recreate(broker)
        assert await read(consumer, len(NEW)) == NEW
        await consumer.commit()
        assert broker.committed == {("g", "t", 0): len(NEW)}
