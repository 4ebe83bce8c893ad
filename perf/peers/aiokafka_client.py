"""aiokafka as the load; see :mod:`perf.sdk_client`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from perf.sdk_client import BATCH_BYTES, PATIENCE, Load


async def send(load: Load) -> None:
    """``await send`` for each record; its future is not looked at."""
    async with _producer(load) as producer:
        topic = load.topic
        with load.measured():
            for value in load.values():
                await producer.send(topic, value)
            await producer.flush()


async def iterate(load: Load) -> None:
    """``async for record in consumer``."""
    seen = volume = 0
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            async for record in consumer:
                seen += 1
                volume += len(record.value)
                if seen == load.count:
                    break
    load.check(seen, volume)


async def poll(load: Load) -> None:
    """``getmany``, and the value of each record."""
    seen = volume = 0
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            while seen < load.count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        volume += len(record.value)
                    seen += len(records)
    load.check(seen, volume)


async def send_paced(load: Load) -> None:
    """``send`` at a fixed rate."""
    async with _producer(load) as producer:
        await load.send_paced_async(producer.send, producer.flush)


async def send_and_wait(load: Load) -> None:
    """``await send_and_wait`` for each record."""
    async with _producer(load) as producer:
        await load.await_each(producer.send_and_wait)


async def send_and_wait_by_many(load: Load) -> None:
    """The same of many tasks."""
    async with _producer(load) as producer:
        await load.await_by_many(producer.send_and_wait)


async def read_paced(load: Load) -> None:
    """``async for record in consumer``, and when each came."""
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        await consumer.getmany(timeout_ms=500)
        load.ready()
        async for record in consumer:
            if not load.arrived(record.value):
                return


@asynccontextmanager
async def _producer(load: Load) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=load.bootstrap,
        enable_idempotence=True,  # and so acks="all"
        linger_ms=load.linger_ms,
        max_batch_size=BATCH_BYTES,
    )
    async with producer:
        await producer.partitions_for(load.topic)
        yield producer


@asynccontextmanager
async def _consumer(load: Load) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(bootstrap_servers=load.bootstrap, group_id=None) as consumer:
        partition = TopicPartition(load.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        yield consumer
