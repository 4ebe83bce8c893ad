"""What the agent sends: values in batches of their own, at once and without a wait."""

from collections.abc import AsyncIterator

import pytest

from qbus.clients import Producer
from qbus.clients.producer.delivery import BulkDelivery
from qbus.errors import ApiError, ErrorCode
from tests.support.fake_broker import FakeBroker


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}) as broker:
        yield broker


@pytest.fixture
async def producer(broker: FakeBroker) -> AsyncIterator[Producer]:
    """A producer that has sent something to each partition, and so knows all it has to know."""
    async with Producer(broker.bootstrap, linger_ms=0, batch_bytes=1000) as producer:
        for partition in range(2):
            await (await producer.send("t", b"first", partition=partition))
        yield producer


async def test_what_is_added_is_in_flight_at_once(broker: FakeBroker, producer: Producer) -> None:
    added: list[BulkDelivery | None] = []

    def add() -> None:
        added.extend(producer._send_values("t", [b"a", b"b"], 2, part) for part in range(2))

    producer._send_at_once(add)
    assert len(producer._sender._awaited) == 1, "one request for both partitions"
    for delivery in added:
        assert delivery is not None
        (stored,) = await delivery
        assert (stored.base_offset, stored.records_count) == (1, 2)
        assert delivery.exception() is None
    for partition in range(2):
        assert broker.logs["t", partition].values() == [b"first", b"a", b"b"]


async def test_batches_are_sent_in_the_order_in_which_they_are_added(
    broker: FakeBroker, producer: Producer
) -> None:
    waiting = await producer.send("t", b"before", partition=0)
    values = [b"%d" % number for number in range(20)]
    deliveries = [producer._send_values("t", [value], len(value), 0) for value in values]
    after = await producer.send("t", b"after", partition=0)
    await after
    assert waiting.done()
    assert all(delivery is not None and delivery.done() for delivery in deliveries)
    assert broker.logs["t", 0].values() == [b"first", b"before", *values, b"after"]


async def test_what_would_wait_or_fail_is_not_sent(producer: Producer) -> None:
    assert producer._send_values("unknown", [b"a"], 1, 0) is None
    assert producer._send_values("t", [b"a"], 1, 2) is None
    assert producer._send_values("t", [b"a" * 1000], 1000, 0) is None
    await producer.close()
    assert producer._send_values("t", [b"a"], 1, 0) is None


async def test_nor_is_anything_before_the_first_send(broker: FakeBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.partitions("t")
        assert producer._send_values("t", [b"a"], 1, 0) is None
        producer._send_at_once(lambda: None)


async def test_nor_is_anything_after_an_error_that_ended_the_producer(producer: Producer) -> None:
    """Senders of the agent go on until it is replaced: they are told, and do not fail."""
    producer._sender.fail(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert producer._send_values("t", [b"a"], 1, 0) is None


async def test_an_answer_is_told_once_when_all_of_its_batches_are_done(producer: Producer) -> None:
    told: list[list[bool]] = []
    deliveries: list[BulkDelivery] = []

    def add() -> None:
        for partition in range(2):
            delivery = producer._send_values("t", [b"a"], 1, partition)
            assert delivery is not None
            delivery.add_done_callback(lambda _: seen.append(producer._is_answering))
            deliveries.append(delivery)

    seen: list[bool] = []
    producer._after_answer(lambda: told.append([delivery.done() for delivery in deliveries]))
    producer._send_at_once(add)
    for delivery in deliveries:
        await delivery
    assert told == [[True, True]]
    assert seen == [True, True]
    assert not producer._is_answering
