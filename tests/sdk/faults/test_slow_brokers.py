"""Brokers that are slow, silent, half-open or gone: everything ends in time, and then goes on."""

import asyncio
from collections.abc import Callable

import pytest

from qbus.aio import Producer
from qbus.clients import TopicPartition
from qbus.errors import ApiError
from tests.sdk.conftest import PARTITIONS, with_qbus
from tests.sdk.ledger import MARGIN, Seen, Sent
from tests.sdk.reading import read, read_topic, records
from tests.sdk.sdk_clients import AsyncClients, SdkClients
from tests.support.fault_proxy import FaultProxy

LONGEST_BACKOFF = 1.0
"""Seconds for which a client leaves an address alone that it could not reach, at most."""

Harm = Callable[[FaultProxy], None]


def silent(proxy: FaultProxy) -> None:
    """The broker takes everything and does not answer."""
    proxy.to_client.stall()


def half_open(proxy: FaultProxy) -> None:
    """The host is gone without a word: nothing arrives, in neither direction."""
    proxy.to_server.swallow()
    proxy.to_client.swallow()


pytestmark = with_qbus  # the proxy is what differs
harms = pytest.mark.parametrize(
    ("sdk", "harm"),
    [("aio", silent), ("aio", half_open), ("blocking", half_open)],
    indirect=["sdk"],
    ids=lambda part: getattr(part, "__name__", part),
)


@harms
async def test_deliveries_wait_for_the_broker(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, harm: Harm
) -> None:
    async with sdk.producer(proxy.bootstrap, request_timeout_ms=300) as producer:
        sent = Sent(sdk, producer, proxied_topic, PARTITIONS)
        for _ in range(30):
            await sent.send()
        await producer.flush()
        harm(proxy)
        for _ in range(30):
            await sent.send()
        await asyncio.sleep(0.8)  # the requests time out, more than once
        proxy.heal()
        await sent.check_delivered(MARGIN)
    await sent.audit(await read_topic(proxy.bootstrap, proxied_topic, len(sent)), MARGIN)


@harms
async def test_deliveries_fail_in_time(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, harm: Harm
) -> None:
    producer = sdk.producer(proxy.bootstrap, request_timeout_ms=300, delivery_timeout_ms=700)
    async with producer:
        sent = Sent(sdk, producer, proxied_topic, PARTITIONS)
        for _ in range(30):
            await sent.send()
        await producer.flush()
        harm(proxy)
        for _ in range(30):
            await sent.send()
        outcomes = await sent.outcomes(0.7 + MARGIN)
        proxy.heal()
    failed = [outcome for outcome in outcomes.values() if isinstance(outcome, ApiError)]
    assert len(failed) == 30
    assert all(error.retriable for error in failed)


@harms
async def test_a_flush_and_a_close_end_in_time(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, harm: Harm
) -> None:
    producer = sdk.producer(proxy.bootstrap, request_timeout_ms=400, delivery_timeout_ms=800)
    async with asyncio.timeout(MARGIN):
        async with producer:
            await sdk.result(await producer.send(proxied_topic, b"known", partition=0))
            harm(proxy)
            delivery = await producer.send(proxied_topic, b"lost", partition=0)
        with pytest.raises(ApiError):
            await sdk.result(delivery)


@harms
async def test_a_consumer_goes_on(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, harm: Harm
) -> None:
    seen = Seen()
    async with (
        Producer(proxy.bootstrap, request_timeout_ms=500) as producer,
        sdk.consumer(
            proxy.bootstrap,
            group=proxied_topic,
            offset_reset="earliest",
            request_timeout_ms=500,
            fetch_max_wait_ms=100,
        ) as consumer,
    ):
        consumer.subscribe([proxied_topic])
        sent = Sent(AsyncClients(), producer, proxied_topic, PARTITIONS)
        for _ in range(30):
            await sent.send()
        seen.add(await read(consumer, 30))
        harm(proxy)
        async with asyncio.timeout(MARGIN):
            assert records(await consumer.poll(0.8)) == []  # the fetches time out
        proxy.heal()
        for _ in range(30):
            await sent.send()
        while seen.count < len(sent):
            seen.add(await read(consumer, 1))
    seen.check_none_skipped()


@harms
async def test_the_admin_is_answered_or_told(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, harm: Harm
) -> None:
    async with sdk.admin(proxy.bootstrap, request_timeout_ms=600) as admin:
        await admin.describe_topic(proxied_topic)
        harm(proxy)
        async with asyncio.timeout(MARGIN):
            with pytest.raises(ApiError) as caught:
                await admin.describe_topic(proxied_topic)
        assert caught.value.retriable
        proxy.heal()
        assert (await admin.describe_topic(proxied_topic)).name == proxied_topic


async def test_frames_in_small_late_pieces_are_read(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients
) -> None:
    """Frames that arrive in small pieces, each late, are frames all the same."""
    async with sdk.producer(proxy.bootstrap) as producer:
        sent = Sent(sdk, producer, proxied_topic, PARTITIONS)
        for _ in range(300):
            await sent.send()
        await producer.flush()
        proxy.to_server.trickle(300, every=0.002)
        proxy.to_client.trickle(30, every=0.001)
        for _ in range(300):
            await sent.send()
        await sent.check_delivered(MARGIN)
    seen = Seen()
    async with sdk.consumer(proxy.bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(proxied_topic, partition, None) for partition in range(PARTITIONS)])
        seen.add(await read(consumer, len(sent)))
    seen.check_none_skipped()


async def test_a_late_answer_is_not_taken_for_the_next_one(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients
) -> None:
    """An answer that comes after its time is over must not be taken for that of a later request."""
    async with sdk.admin(proxy.bootstrap, request_timeout_ms=500) as admin:
        await admin.describe_topic(proxied_topic)
        proxy.to_client.delay(1.0)
        with pytest.raises(ApiError):
            await admin.describe_topic(proxied_topic)
        await asyncio.sleep(0.6)
        proxy.heal()
        partition = TopicPartition(proxied_topic, 0)
        assert (await admin.list_offsets({partition: -1}))[partition].offset == 0


async def test_nobody_listens(proxy: FaultProxy, proxied_topic: str, sdk: SdkClients) -> None:
    """A broker that was known goes away for good: every call ends, each in its own way."""
    async with (
        sdk.producer(proxy.bootstrap, request_timeout_ms=400, delivery_timeout_ms=800) as producer,
        sdk.consumer(proxy.bootstrap, offset_reset="earliest", request_timeout_ms=400) as consumer,
    ):
        await sdk.result(await producer.send(proxied_topic, b"v", partition=0))
        consumer.assign([(proxied_topic, 0, None)])
        assert len(await read(consumer, 1)) == 1
        await proxy.refuse()
        proxy.cut(reset=True)
        async with asyncio.timeout(3 * MARGIN):
            delivery = await producer.send(proxied_topic, b"lost", partition=0)
            with pytest.raises(ApiError) as caught:
                await sdk.result(delivery)
            assert caught.value.retriable
            assert records(await consumer.poll(0.3)) == []
        await proxy.listen()
        await asyncio.sleep(LONGEST_BACKOFF)  # which is more than a delivery may take here
        await sdk.result(await producer.send(proxied_topic, b"after", partition=0))
        assert [record.value for record in await read(consumer, 1)] == [b"after"]
