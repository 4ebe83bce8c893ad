"""The SDK for asyncio as the load; see :mod:`perf.sdk_client`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perf import forms
from perf.forms import SHARING
from perf.peers.qbus_client import Told
from perf.sdk_client import BUFFER_BYTES, PATIENCE, Load, arrow_batches, arrow_volume
from qbus import ShareRecord
from qbus.aio import Consumer, Producer, ShareConsumer


async def send(load: Load) -> None:
    """``await send`` for each record; what it returns is not looked at."""
    async with _producer(load) as producer:
        send_one, topic = producer.send, load.topic
        with load.measured():
            for value in load.values():
                await send_one(topic, value)
            await producer.flush()


async def send_form(load: Load) -> None:
    """``await send`` for each record, in the form of the load."""
    told = Told()
    send_all = forms.loop(load.form, is_async=True)
    async with _producer(load) as producer:
        with load.measured():
            if load.form.per_transaction:
                for rows in forms.transactions(load.form, load.rows()):
                    async with producer.transaction():
                        await send_all(producer.send, None, rows, told.delivery)
            else:
                await send_all(producer.send, None, load.rows(), told.delivery)
            await producer.flush()
    told.check(load)


async def send_many(load: Load) -> None:
    """``send_many`` for a list of values."""
    async with _producer(load) as producer:
        with load.measured():
            for chunk in load.chunks():
                await producer.send_many(load.topic, chunk)
            await producer.flush()


async def send_arrow(load: Load) -> None:
    """``send_arrow`` for a column."""
    async with _producer(load) as producer:
        batches = arrow_batches(load)
        with load.measured():
            for batch in batches:
                await producer.send_arrow(load.topic, batch)
            await producer.flush()


async def iterate(load: Load) -> None:
    """``async for record in consumer``."""
    seen = volume = 0
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            async for record in consumer:
                seen += 1
                volume += len(record.value or b"")
                if seen == load.count:
                    break
    load.check(seen, volume)


async def poll(load: Load) -> None:
    """``poll``, and the value of each record."""
    seen = volume = 0
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            while seen < load.count:
                for records in await consumer.poll(1.0):
                    for record in records:
                        volume += len(record.value or b"")
                    seen += len(records)
    load.check(seen, volume)


async def iterate_form(load: Load) -> None:
    """``async for record in consumer``, and the parts that the form has."""
    iterate = forms.iterate(load.form, is_async=True)
    if load.reading.protocol in SHARING:
        async with _share_consumer(load) as sharing, asyncio.timeout(PATIENCE):
            load.skip(len(await _first_shared(sharing)))
            with load.measured():
                volume = await iterate(sharing, load.count)
        load.check_volume(volume)
        return
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            volume = await iterate(consumer, load.count)
    load.check_volume(volume)


async def poll_form(load: Load) -> None:
    """``poll``, and the parts of each record that the form has."""
    volume_of = forms.volume_of(load.form)
    seen = volume = 0
    if load.reading.protocol in SHARING:
        async with _share_consumer(load) as sharing, asyncio.timeout(PATIENCE):
            load.skip(len(await _first_shared(sharing)))
            with load.measured():
                while seen < load.count:
                    records_shared = await sharing.poll(1.0)
                    volume += volume_of(records_shared)
                    seen += len(records_shared)
        load.check_volume(volume)
        return
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            while seen < load.count:
                for records in await consumer.poll(1.0):
                    volume += volume_of(records)
                    seen += len(records)
    load.check_volume(volume)


async def poll_arrow(load: Load) -> None:
    """``poll_arrow``, and the length of each value."""
    seen = volume = 0
    async with _consumer(load) as consumer, asyncio.timeout(PATIENCE):
        with load.measured():
            while seen < load.count:
                for batch in await consumer.poll_arrow(1.0):
                    volume += arrow_volume(batch)
                    seen += batch.num_rows
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
        await consumer.poll(0.5)
        load.ready()
        async for record in consumer:
            if not load.arrived(record.value or b""):
                return


@asynccontextmanager
async def _producer(load: Load) -> AsyncIterator[Producer]:
    async with Producer(
        load.bootstrap,
        linger_ms=load.linger_ms,
        buffer_bytes=BUFFER_BYTES,
        compression=load.form.compression,
        acks=1 if load.form.acks == "1" else "all",
        transactional_id=load.topic if load.form.per_transaction else None,
        security=load.security,
    ) as producer:
        if load.form.per_transaction:
            await producer.init_transactions()
        for topic in load.topics():
            await producer.partitions(topic)
        yield producer


@asynccontextmanager
async def _consumer(load: Load) -> AsyncIterator[Consumer]:
    group = load.group or None
    async with Consumer(
        load.bootstrap,
        group=group,
        group_protocol="consumer" if load.reading.protocol == "consumer" else "classic",
        isolation_level="read_committed" if load.reading.is_committed else "read_uncommitted",
        offset_reset="earliest",
        prefetch_bytes=BUFFER_BYTES,
        security=load.security,
    ) as consumer:
        if group is None:
            await consumer.partitions(load.topic)  # connects, as confluent-kafka's list_topics does
            consumer.assign([(load.topic, index, 0) for index in range(load.form.partitions)])
        else:
            consumer.subscribe([load.topic])
            async with asyncio.timeout(PATIENCE):
                while not (first := await consumer.poll(1.0, 1)):
                    pass
            load.skip(sum(map(len, first)))
        yield consumer


def _share_consumer(load: Load) -> ShareConsumer:
    is_alike = load.reading.protocol == "share by batches"  # to librdkafka
    return ShareConsumer(
        load.bootstrap, load.group, [load.topic], acquire="batches" if is_alike else "records"
    )


async def _first_shared(consumer: ShareConsumer) -> list[ShareRecord]:
    while not (records := await consumer.poll(1.0, 1)):
        pass
    return records
