"""Batches: what was added is what is encoded, and everyone who waits is told."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients import RequestTimedOut
from qbus.clients.blocking.delivery import BlockingDelivery
from qbus.clients.producer.batch import UNANSWERED, Batch, ProducerIdentity, Stored
from qbus.clients.producer.delivery import AsyncDelivery, BulkDelivery, Delivery
from qbus.clients.producer.lists import ListBatch
from qbus.clients.types import BatchMetadata, RecordMetadata, TopicPartition
from qbus.errors import QbusError
from qbus.records import Compression, check_crc, iter_records, read_header

PARTITION = TopicPartition("t", 3)
CREATED = 1_700_000_000_000


def batch(*values: bytes) -> ListBatch:
    made = ListBatch(PARTITION, CREATED, 0.0)
    for value in values:
        made.add(value)
    return made


def encoded(made: Batch, compression: Compression = Compression.NONE) -> list[tuple]:
    data = made.encode(compression, None)
    check_crc(data, read_header(data))
    return [(r.key, r.value, r.headers, r.timestamp) for r in iter_records(data)]


def test_values_alone_get_the_batchs_time() -> None:
    made = batch(b"a")
    assert made.add_many([b"b", b"c"]) == 1
    assert made.count == 3
    assert encoded(made) == [(None, value, (), CREATED) for value in (b"a", b"b", b"c")]


def test_records_of_every_kind_keep_their_order() -> None:
    made = batch(b"a")
    made.add(None, b"k", [("h", b"x")], 5)
    made.add(b"b")
    made.add_many([b"c"])
    made.add_many([b"d", b"e"], [b"k", None], [None, [("n", None)]], [None, 6])
    assert made.count == 6
    assert encoded(made) == [
        (None, b"a", (), CREATED),
        (b"k", None, (("h", b"x"),), 5),
        (None, b"b", (), CREATED),
        (None, b"c", (), CREATED),
        (b"k", b"d", (), CREATED),
        (None, b"e", (("n", None),), 6),
    ]


@pytest.mark.parametrize("identity", [ProducerIdentity(7, 2), None])
def test_the_header_carries_identity_sequence_and_codec(identity: ProducerIdentity | None) -> None:
    made = batch(b"a")
    if identity is not None:
        made.identity, made.sequence = identity, 41
    header = read_header(made.encode(Compression.LZ4, None))
    numbers = (header.producer_id, header.producer_epoch, header.base_sequence)
    assert numbers == ((7, 2, 41) if identity else (-1, -1, -1))
    assert header.compression is Compression.LZ4


def test_everyone_is_told_where_their_records_are() -> None:
    made = batch(b"a", b"b", b"c")
    made.add(b"d", b"k", None, 5)
    deliveries = [Delivery(made, index) for index in range(4)]
    bulk = BulkDelivery([(made, 1, 3)])
    assert not any(handle.done() for handle in (*deliveries, bulk))
    made.complete(Stored(100, -1))
    assert deliveries[0].result() == RecordMetadata("t", 3, 100, CREATED)
    assert deliveries[3].result() == RecordMetadata("t", 3, 103, 5)
    assert (deliveries[3].offset, deliveries[3].partition, deliveries[3].timestamp) == (103, 3, 5)
    assert bulk.result() == [BatchMetadata("t", 3, 101, 2, CREATED)]
    assert len(bulk) == 2
    assert deliveries[0].exception() is None


def test_the_brokers_time_wins() -> None:
    made = batch()
    made.add(b"a", None, None, 5)
    made.complete(Stored(1, CREATED + 9))
    assert Delivery(made, 0).timestamp == CREATED + 9


def test_without_acks_offsets_are_unknown() -> None:
    made = batch(b"a", b"b")
    made.complete(Stored(-1, -1))
    assert Delivery(made, 1).offset == -1
    assert BulkDelivery([(made, 1, 2)]).result()[0].base_offset == -1


def test_everyone_is_told_of_a_failure() -> None:
    made = batch(b"a", b"b")
    made.complete(QbusError("no"))
    made.complete(Stored(1, -1))  # which comes too late
    for handle in (Delivery(made, 0), BulkDelivery([(made, 0, 2)])):
        assert handle.done()
        assert str(handle.exception()) == "no"
        with pytest.raises(QbusError, match="no"):
            handle.result()


def test_a_handle_that_waits_in_vain() -> None:
    with pytest.raises(RequestTimedOut):
        Delivery(batch(b"a"), 0).result(0.01)
    with pytest.raises(RequestTimedOut):
        _ = Delivery(batch(b"a"), 0).offset


def test_another_thread_is_woken() -> None:
    made = batch(b"a")
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(Delivery(made, 0).result(10)))
    waiting.start()
    made.complete(Stored(7, -1))
    waiting.join(10)
    assert [result.offset for result in results] == [7]


async def test_awaiting() -> None:
    made = ListBatch(PARTITION, CREATED, 0.0, asyncio.get_running_loop())
    made.add(b"a")
    waiting = [asyncio.ensure_future(Delivery(made, 0)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QbusError, match="await"):
        Delivery(made, 0).result()
    waiting[0].cancel()
    made.complete(Stored(7, -1))
    assert (await waiting[1]).offset == 7
    assert (await Delivery(made, 0)).offset == 7


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_callbacks_are_told_before_and_after_and_may_fail(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    made = batch(b"a")
    told: list[Delivery] = []

    def broken(_: Delivery) -> None:
        raise error

    delivery = Delivery(made, 0)
    delivery.add_done_callback(broken)
    delivery.add_done_callback(told.append)
    assert not told
    made.complete(QbusError("no"))
    assert told == [delivery]
    delivery.add_done_callback(told.append)
    assert told == [delivery] * 2
    assert error.__name__ in caplog.text


def test_a_bulk_is_done_with_its_last_part() -> None:
    parts = [batch(b"a"), batch(b"b", b"c")]
    bulk = BulkDelivery([(parts[0], 0, 1), (parts[1], 0, 2)])
    told: list[BulkDelivery] = []
    bulk.add_done_callback(told.append)
    parts[1].complete(Stored(10, -1))
    assert not bulk.done()
    assert not told
    parts[0].complete(Stored(5, -1))
    assert told == [bulk]
    assert [part.base_offset for part in bulk.result()] == [5, 10]


def test_a_bulk_of_nothing_is_done() -> None:
    assert BulkDelivery([]).done()
    assert BulkDelivery([]).result(0) == []


@given(st.integers(2, 20), st.lists(st.booleans(), max_size=6), st.data())
def test_splits_lose_nobody(count: int, turns: list[bool], data: st.DataObject) -> None:
    """Each half of each half tells of its own, before or after they were asked."""
    made = batch(*(b"%d" % number for number in range(count)))
    made.add_many([b"last"], [b"k"], None, [9])
    made.identity, made.sequence = ProducerIdentity(1, 0), 100
    told: list[int] = []
    bulk = BulkDelivery([(made, 0, made.count)])

    def note(index: int) -> Callable[[Delivery], None]:
        return lambda _: told.append(index)

    for index in range(made.count):
        Delivery(made, index).add_done_callback(note(index))
    leaves: list[Batch] = [made]
    for _ in turns:
        large = data.draw(st.sampled_from(leaves))
        if large.count > 1:
            place = leaves.index(large)
            leaves[place : place + 1] = large.split()
    values = [value for leaf in leaves for _, value, _, _ in encoded(leaf)]
    assert values == [*(b"%d" % number for number in range(count)), b"last"]
    first = 100
    for leaf in leaves:
        assert leaf.sequence == first
        assert not bulk.done()
        leaf.complete(Stored(first + 1000, -1))
        first += leaf.count
    assert told == list(range(count + 1))
    assert [Delivery(made, i).offset for i in range(count + 1)] == list(range(1100, first + 1000))
    assert Delivery(made, count).timestamp == 9
    assert sum(part.records_count for part in bulk.result()) == count + 1


@pytest.mark.parametrize("face", [AsyncDelivery, BlockingDelivery])
@pytest.mark.parametrize(
    ("stored", "why"),
    [(Stored(-1, -1), "stored in t-3, but its place is not known"), (UNANSWERED, "acks=0")],
)
async def test_orders_about_a_record_whose_place_is_unknown(
    face: type[AsyncDelivery | BlockingDelivery], stored: Stored, why: str
) -> None:
    made = batch(b"a", b"b")
    delivery = face(made, 1)
    made.complete(stored)

    async def give(order: Callable[[], Any]) -> None:
        asked = order()
        if inspect.isawaitable(asked):
            await asked

    for order in (delivery.cancel, partial(delivery.reschedule, delay="5m")):
        with pytest.raises(QbusError, match=why):
            await give(order)
