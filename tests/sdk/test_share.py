"""Members of share groups, by the sync and the async clients, on both servers."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from qbus.aio import Admin, Producer
from qbus.clients import AcknowledgementLost, ConfigKind
from qbus.errors import ApiError
from tests.sdk.conftest import PARTITIONS
from tests.sdk.sdk_clients import SdkClients
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually

# Apache Kafka takes long for what waits: it has its turn at night.
pytestmark = pytest.mark.parametrize(
    "server",
    ["qbus", pytest.param("kafka", marks=pytest.mark.nightly)],
    indirect=True,
    scope="session",
)


async def group_of(bootstrap: str, name: str) -> str:
    """A share group that begins at the earliest record."""
    async with Admin(bootstrap) as admin:
        await admin.alter_config(
            ConfigKind.GROUP, name, set={"share.auto.offset.reset": "earliest"}
        )
    return name


async def fill(bootstrap: str, topic: str, count: int, *, partition: int | None = None) -> None:
    async with Producer(bootstrap, batch_bytes=2000) as producer:
        await producer.send_many(
            topic, [b"%d" % number for number in range(count)], partition=partition
        )


async def taken(consumer: Any, count: int) -> list[Any]:
    """Poll until there are as many records."""
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(1.0)
    return found


def numbers(records: Sequence[Any]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


async def is_over(bootstrap: str, group: str, topic: str, sdk: SdkClients) -> bool:
    """Whether the group has nothing more of the topic to give out."""
    async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
        for _ in range(4):
            if await consumer.poll(1.0):
                return False
    return True


async def test_each_record_once_if_it_is_accepted(
    bootstrap: str, topic: str, name: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 1000)
    group = await group_of(bootstrap, name)
    async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
        found = await taken(consumer, 1000)
        assert len(consumer.assignment) == PARTITIONS
    assert numbers(found) == list(range(1000))
    assert {record.deliveries for record in found} == {1}
    assert await is_over(bootstrap, group, topic, sdk)


async def test_a_loop(bootstrap: str, topic: str, name: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 300)
    group = await group_of(bootstrap, name)
    seen = []
    async with sdk.share_consumer(
        bootstrap, group, [topic], consumer_timeout_ms=10_000
    ) as consumer:
        async for record in consumer:
            seen.append(record)
            if len(seen) == 200:
                break
    async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
        seen += await taken(consumer, 100)
    assert numbers(seen) == list(range(300))


async def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    bootstrap: str, topic: str, name: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 30, partition=0)
    group = await group_of(bootstrap, name)
    async with sdk.share_consumer(
        bootstrap, group, [topic], acknowledge="explicit", acquire="records"
    ) as consumer:
        records = await taken(consumer, 30)
        consumer.accept(records[:10])
        consumer.release(records[10:20])
        consumer.reject(records[20:])
        await consumer.flush()
        again = await taken(consumer, 10)
        assert numbers(again) == numbers(records[10:20])
        assert {record.deliveries for record in again} == {2}
        consumer.accept(again)
    assert await is_over(bootstrap, group, topic, sdk)


async def test_what_a_member_leaves_another_gets(
    bootstrap: str, topic: str, name: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 20, partition=0)
    group = await group_of(bootstrap, name)

    async def fail() -> None:
        async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
            await taken(consumer, 20)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
        found = await taken(consumer, 20)
    assert numbers(found) == list(range(20))
    assert {record.deliveries for record in found} == {2}


async def test_more_members_than_partitions(
    bootstrap: str, topic: str, name: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 600)
    group = await group_of(bootstrap, name)
    seen: list[Any] = []

    async def work(consumer: Any) -> None:
        while len(seen) < 600:
            seen.extend(await consumer.poll(0.5, max_records=10))

    async with AsyncExitStack() as stack, asyncio.timeout(90):
        consumers = [
            await stack.enter_async_context(
                sdk.share_consumer(
                    bootstrap, group, [topic], acquire="records", max_poll_records=10
                )
            )
            for _ in range(PARTITIONS + 2)
        ]
        await asyncio.gather(*(work(consumer) for consumer in consumers))
    assert numbers(seen) == list(range(600))
    assert await is_over(bootstrap, group, topic, sdk)


async def test_locks_are_renewed(bootstrap: str, topic: str, name: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 3, partition=0)
    group = await group_of(bootstrap, name)
    async with sdk.share_consumer(bootstrap, group, [topic], acknowledge="explicit") as consumer:
        records = await taken(consumer, 3)
        assert consumer.lock_timeout >= 1
        await consumer.renew(records)
        for record in records:
            await consumer.settle(record)
        with pytest.raises(ApiError):
            await consumer.renew(records[0])
    assert await is_over(bootstrap, group, topic, sdk)


async def test_columns(bootstrap: str, topic: str, name: str, sdk: SdkClients) -> None:
    pytest.importorskip("pyarrow")
    await fill(bootstrap, topic, 500)
    group = await group_of(bootstrap, name)
    async with sdk.share_consumer(bootstrap, group, [topic]) as consumer:
        values: list[int] = []
        async with asyncio.timeout(60):
            while len(values) < 500:
                for batch in await consumer.poll_arrow(1.0):
                    assert set(batch.column("deliveries").to_pylist()) == {1}
                    values += [int(value) for value in batch.column("value").to_pylist()]
    assert sorted(values) == list(range(500))
    assert await is_over(bootstrap, group, topic, sdk)


async def test_a_cut_connection_loses_no_record(
    proxy: FaultProxy, proxied_topic: str, name: str, sdk: SdkClients
) -> None:
    await fill(proxy.bootstrap, proxied_topic, 300)
    group = await group_of(proxy.bootstrap, name)
    seen: set[int] = set()
    lost: list[AcknowledgementLost] = []
    async with sdk.share_consumer(
        proxy.bootstrap, group, [proxied_topic], max_poll_records=20, on_lost=lost.append
    ) as consumer:
        async with asyncio.timeout(90):
            while len(seen) < 300:
                seen |= {int(record.value) for record in await consumer.poll(1.0)}
                if 100 < len(seen) < 150 and not lost:
                    proxy.cut()
    assert seen == set(range(300))
    await eventually(lambda: is_over(proxy.bootstrap, group, proxied_topic, sdk), timeout=90)
