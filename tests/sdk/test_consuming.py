"""Consuming, by the sync and the async clients, from both servers."""

import pytest

from qbus.aio import Producer
from qbus.clients import EARLIEST, LATEST, ConsumerRecord, NoOffset, TopicPartition
from qbus.errors import ApiError, QbusError
from tests.sdk.conftest import PARTITIONS
from tests.sdk.ledger import Seen
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import SdkClients

HOUR = 3_600_000
THEN = 1_700_000_000_000


async def fill(bootstrap: str, topic: str, count: int, *, partition: int | None = 0) -> None:
    """Produce numbers, an hour apart by their timestamps, to one partition or in turn to each."""
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(
                topic,
                b"%d" % number,
                partition=number % PARTITIONS if partition is None else partition,
                timestamp=THEN + number * HOUR,
            )


def numbers(found: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in found]


async def test_assigned_partitions_alone(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 30, partition=None)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, None), (topic, 2, 4)])
        assert consumer.assignment == [TopicPartition(topic, 0), TopicPartition(topic, 2)]
        seen = Seen()
        seen.add(await read(consumer, 16))
        assert seen.offsets == {0: list(range(10)), 2: list(range(4, 10))}


async def test_a_subscription_without_a_group_is_everything(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 300, partition=None)
    async with sdk.consumer(bootstrap, offset_reset="earliest", max_poll_records=7) as consumer:
        consumer.subscribe([topic])
        found = await read(consumer, 300)
    assert sorted(numbers(found)) == list(range(300))


async def test_a_poll_returns_at_most_what_it_may(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 100)
    async with sdk.consumer(bootstrap, offset_reset="earliest", max_poll_records=30) as consumer:
        consumer.assign([(topic, 0, None)])
        sizes: list[int] = []
        while sum(sizes) < 100:
            sizes.append(len(records(await consumer.poll(1.0))))
    assert max(sizes) <= 30


async def test_small_fetches_bring_everything(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    """A batch larger than every limit comes all the same, or nobody could read on."""
    async with Producer(bootstrap, batch_bytes=5000) as producer:
        await producer.send_many(topic, [bytes(1000)] * 200)
    async with sdk.consumer(
        bootstrap, offset_reset="earliest", partition_max_bytes=1, fetch_max_bytes=1
    ) as consumer:
        consumer.subscribe([topic])
        assert len(await read(consumer, 200)) == 200


async def test_from_the_end_by_default(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 5)
    async with sdk.consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0, None)])
        assert records(await consumer.poll(0.5)) == []
        await fill(bootstrap, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [5]


async def test_seeking(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    async with sdk.consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0, 4)])
        assert numbers(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        assert consumer.position(topic, 0) == 10
        consumer.seek(topic, 0, 8)
        assert numbers(await read(consumer, 2)) == [8, 9]
        consumer.seek(topic, 0, EARLIEST)
        assert numbers(await read(consumer, 10)) == list(range(10))
        consumer.seek(topic, 0, LATEST)
        assert records(await consumer.poll(0.3)) == []
        await fill(bootstrap, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [10]
        with pytest.raises(QbusError):
            consumer.seek(topic, 1, 0)


async def test_offsets_by_time(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with sdk.consumer(bootstrap) as consumer:
        found = await consumer.offsets_for_times({partition: THEN + 6 * HOUR - 1})
        assert found == {partition: (6, THEN + 6 * HOUR)}
        assert await consumer.offsets_for_times({partition: THEN + 99 * HOUR}) == {
            partition: (-1, -1)
        }
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}


async def test_an_offset_that_is_gone(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    async with sdk.admin(bootstrap) as admin:
        assert await admin.delete_records({TopicPartition(topic, 0): 7}) == {
            TopicPartition(topic, 0): 7
        }
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, 2)])
        assert numbers(await read(consumer, 3)) == [7, 8, 9]
    async with sdk.consumer(bootstrap, offset_reset="none") as consumer:
        consumer.assign([(topic, 0, 2)])
        with pytest.raises(NoOffset):
            await read(consumer, 1)


async def test_a_group_goes_on_where_it_stopped(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 10)
    options = {"group": topic, "offset_reset": "earliest"}
    async with sdk.consumer(bootstrap, max_poll_records=4, **options) as consumer:
        consumer.subscribe([topic])
        assert numbers(await read(consumer, 4)) == [0, 1, 2, 3]
    async with sdk.consumer(bootstrap, **options) as consumer:
        consumer.subscribe([topic])
        assert numbers(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]


async def test_offsets_are_committed_by_hand(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    options = {"group": topic, "offset_reset": "earliest", "auto_commit": False}
    partition = TopicPartition(topic, 0)
    async with sdk.consumer(bootstrap, **options) as consumer:
        consumer.subscribe([topic])
        await read(consumer, 10)
    async with sdk.consumer(bootstrap, **options) as consumer:
        consumer.subscribe([topic])
        assert numbers(await read(consumer, 10)) == list(range(10))
        await consumer.commit()
        assert (await consumer.committed([partition]))[partition].offset == 10
    async with sdk.consumer(bootstrap, **options) as consumer:
        consumer.subscribe([topic])
        assert records(await consumer.poll(1.0)) == []


async def test_no_group_commits_nothing(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with sdk.consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0, 0)])
        with pytest.raises((QbusError, ApiError)):
            await consumer.commit()
