"""A topic is deleted and created again while a consumer reads it: the new one is read anew."""

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from qbus.clients import Consumer, NoOffset, OffsetAndMetadata, PartitionRecords, TopicPartition
from qbus.clients.committed import fetch_committed
from qbus.clients.errors import TopicDeleted
from qbus.clients.net.versions import SPOKEN
from qbus.records import build_batch
from qbus.wire import ApiKey
from qbus.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.support.fake_broker import FakeBroker
from tests.support.fake_log import PartitionLog
from tests.support.polling import flat

BY_ID = {
    **SPOKEN,
    ApiKey.FETCH: (4, 17),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
}
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


def positions(consumer: Consumer) -> dict[Any, Any]:
    """What a user who keeps positions commits: those of the last poll, with their topic's id."""
    return {
        TopicPartition("t", 0): OffsetAndMetadata(len(OLD), topic_id=UUID(bytes=b"1" * 16)),
    }


@pytest.mark.parametrize("chosen", [None, positions, {("t", 0): len(OLD)}])
async def test_a_position_in_the_former_topic_is_not_committed(chosen: Any) -> None:
    async with broker_of() as broker, consumer_of(broker, group="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        recreate(broker)
        broker.committed.clear()
        with pytest.raises(TopicDeleted) as refused:
            await consumer.commit(chosen(consumer) if callable(chosen) else chosen)
        assert str(refused.value) == (
            "offset 5 of t-0 is not committed: the topic was deleted and created again"
        )
        assert await read(consumer, len(NEW)) == NEW
        await consumer.commit()
        assert broker.committed == {("g", "t", 0): len(NEW)}


async def test_closing_commits_no_position_in_the_former_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker_of() as broker:
        async with consumer_of(broker, group="g") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert await read(consumer, len(OLD)) == OLD
            broker.committed.clear()
            recreate(broker)
        assert broker.committed == {}
    assert "offset 5 of t-0 is not committed: the topic was deleted" in caplog.text


async def test_a_deleted_topic_takes_no_position_either() -> None:
    async with broker_of() as broker, consumer_of(broker, group="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        broker.ids.clear()
        broker.topics.clear()
        with pytest.raises(TopicDeleted, match=r"the topic was deleted$"):
            await consumer.commit()


async def test_a_coordinator_that_does_not_know_the_new_topic_yet_is_asked_again() -> None:
    async with broker_of() as broker, consumer_of(broker, group="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert await read(consumer, len(OLD)) == OLD
        late = 2

        def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
            nonlocal late
            late -= 1
            known, broker.ids = broker.ids, {} if late >= 0 else broker.ids
            try:
                return broker.offset_commit(request)
            finally:
                broker.ids = known

        broker.handlers[ApiKey.OFFSET_COMMIT] = commit
        await consumer.commit()
        assert broker.committed == {("g", "t", 0): len(OLD)}
        assert late < 0


async def test_an_offset_that_was_committed_in_another_topic_is_not_taken() -> None:
    """The coordinator may hear of the new topic later than the consumer, or before it."""
    async with broker_of() as broker:
        partition = TopicPartition("t", 0)
        async with consumer_of(broker) as consumer:
            broker.committed["g", "t", 0] = 5
            cluster, former = consumer._cluster, {"t": UUID(bytes=b"1" * 16)}
            assert (await fetch_committed(cluster, "g", [partition], former))[partition][0] == 5
            recreate(broker)
            assert await fetch_committed(cluster, "g", [partition], former) == {}


async def test_records_say_which_topic_they_are_of() -> None:
    async with broker_of() as broker, consumer_of(broker) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for topic_id in (b"1" * 16, b"2" * 16):
            polled: list[PartitionRecords] = []
            while not polled:
                polled = await consumer.poll(0.05)
            assert {records.topic_id for records in polled} == {UUID(bytes=topic_id)}
            recreate(broker)
