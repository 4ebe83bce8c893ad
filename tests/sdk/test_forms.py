"""Arguments that have several forms mean the same in each form."""

import asyncio

import pytest

from qbus.aio import Producer
from qbus.clients import EARLIEST, LATEST, TopicPartition
from qbus.errors import QbusError
from tests.sdk.conftest import PARTITIONS, with_qbus
from tests.sdk.reading import read
from tests.sdk.sdk_clients import SdkClients

pytestmark = with_qbus


async def fill(bootstrap: str, topic: str, count: int = 10) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0, timestamp=1000 + number)


@pytest.mark.parametrize("form", ["pair", "TopicPartition", "triple", "triple without offset"])
async def test_assign(bootstrap: str, topic: str, sdk: SdkClients, form: str) -> None:
    await fill(bootstrap, topic)
    forms = {
        "pair": (topic, 0),
        "TopicPartition": TopicPartition(topic, 0),
        "triple": (topic, 0, EARLIEST),
        "triple without offset": (topic, 0, None),
    }
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([forms[form]])
        assert len(await read(consumer, 10)) == 10


async def test_seek_and_position(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        where = TopicPartition(topic, 0)
        consumer.seek(topic, 0, 7)
        assert consumer.position(topic, 0) == consumer.position(where) == 7
        consumer.seek(where, 8)
        assert consumer.position((topic, 0)) == 8
        consumer.seek(where, offset=9)
        assert consumer.position(where) == 9
        await consumer.seek_to_time(where, 1004)
        assert consumer.position(where) == 4
        consumer.seek_to_beginning()
        assert (await read(consumer, 10))[0].offset == 0
        consumer.seek_to_end([where])
        assert await consumer.poll(0.3) == []
        assert consumer.position(where) == 10
        with pytest.raises(TypeError, match="offset is missing"):
            consumer.seek(where)
        with pytest.raises(TypeError, match="which partition"):
            consumer.position(topic)
        with pytest.raises(QbusError, match="nowhere-0 is not assigned"):
            consumer.seek_to_end([("nowhere", 0)])


async def test_pairs_name_partitions(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic)
    async with sdk.consumer(bootstrap) as consumer:
        pair = (topic, 0)
        consumer.assign([pair])
        consumer.pause([pair])
        assert consumer.paused == [TopicPartition(*pair)]
        consumer.resume([pair])
        assert consumer.paused == []
        assert await consumer.end_offsets([pair]) == {pair: 10}
        assert await consumer.beginning_offsets([pair]) == {pair: 0}
        assert (await consumer.offsets_for_times({pair: 1005}))[TopicPartition(*pair)].offset == 5
        with pytest.raises(QbusError, match="nowhere-0 is not assigned"):
            consumer.pause([("nowhere", 0)])


async def test_iterating_ends_when_nothing_came_for_a_while(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic)
    options = {"offset_reset": "earliest", "consumer_timeout_ms": 700}
    async with sdk.consumer(bootstrap, **options) as consumer:
        consumer.assign([(topic, 0)])
        found: list[int] = []
        async for record in consumer:
            if not found:
                await asyncio.sleep(1.0)  # the reader's own time does not count
            found.append(record.offset)
        assert found == list(range(10))


async def test_bootstrap_takes_a_list(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with (
        sdk.producer([bootstrap]) as producer,
        sdk.consumer([bootstrap, bootstrap]) as consumer,
        sdk.admin([bootstrap]) as admin,
    ):
        stored = await producer.send_and_wait(topic, b"x", key=b"k", partition=1)
        assert (stored.topic, stored.partition, stored.offset) == (topic, 1, 0)
        every = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        assert await producer.partitions(topic) == await consumer.partitions(topic) == every
        assert topic in [found.name for found in await admin.list_topics()]


async def test_reprs_say_what_it_is_and_how_it_goes(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    async with sdk.producer(bootstrap) as producer:
        delivery = producer.send(topic, b"x", partition=0)
        if asyncio.iscoroutine(delivery):
            delivery = await delivery
        await sdk.result(delivery)
        assert repr(delivery) == f"<Delivery to {topic}-0: at 0>"
    async with sdk.consumer(bootstrap, group="g") as consumer:
        text = repr(getattr(consumer, "_client", consumer))
        assert text == f"<Consumer of {bootstrap}, group g: 0 partitions>"


async def test_administration_takes_pairs(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    place, group = (topic, 0), f"{topic}-group"
    async with sdk.producer(bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
    async with sdk.admin(bootstrap) as admin:
        assert (await admin.list_offsets({place: LATEST}))[place].offset == 5
        assert await admin.delete_records({place: 2}) == {place: 2}
        assert list(await admin.describe_producers([place])) == [place]
        assert list(await admin.describe_delayed([place])) == [place]
        await admin.alter_group_offsets(group, {place: 4})
        assert (await admin.committed_offsets(group, [place]))[place].offset == 4
        assert (await admin.group_offsets(group, [place]))[0].lag == 1
        assert await admin.reset_group_offsets(group, [place]) == {place: 2}
        await admin.delete_group_offsets(group, [place])
        assert await admin.committed_offsets(group, [place]) == {}
        assert await admin.list_reassignments([place]) == {}
