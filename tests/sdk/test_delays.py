"""Records that our own producers send to be delivered later, and what they say of them after."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
import pytest_asyncio

from qbus.aio import Admin, Producer
from qbus.clients import LATEST, ConfigKind, TopicPartition
from qbus.clients.batches import find_producer
from qbus.clients.net.cluster import Cluster
from qbus.errors import ApiError, ConfigError, QbusError
from tests.sdk.conftest import with_qbus
from tests.sdk.reading import read
from tests.sdk.sdk_clients import SdkClients

pytestmark = with_qbus

ENABLED = {"qbus.delay.enable": "true"}
LATER = "1h"


@pytest_asyncio.fixture
async def delaying(bootstrap: str, topic: str) -> str:
    """A topic that holds records back."""
    async with Admin(bootstrap) as admin:
        await admin.alter_config(ConfigKind.TOPIC, topic, set=ENABLED)
    return topic


@pytest_asyncio.fixture
async def producer(bootstrap: str, sdk: SdkClients) -> AsyncIterator[Any]:
    """A producer of either kind."""
    async with sdk.producer(bootstrap) as producer:
        yield producer


async def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a method of either kind returns."""
    result = await asyncio.to_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def pending(bootstrap: str, topic: str) -> dict[int | str, int]:
    """How long each record that is held back was to wait at first, by its key or offset, in ms."""
    async with Admin(bootstrap) as admin:
        places = [(topic, one.index) for one in (await admin.describe_topic(topic)).partitions]
        found = await admin.describe_delayed(places, limit=100)
    return {
        record.original_offset if record.key is None else record.key.decode(): record.due
        - record.taken
        for one in found.values()
        for record in one.records
    }


async def came(bootstrap: str, topic: str, count: int, sdk: SdkClients) -> list[Any]:
    """So many records of the topic, and no more."""
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, index) for index in range(3)])
        records = await read(consumer, count)
        assert await consumer.poll(0.5) == []
        return list(records)


async def test_a_record_comes_when_it_is_due(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients
) -> None:
    due = time.time_ns() // 1_000_000 + 700
    local = datetime.fromtimestamp(due / 1000, UTC).astimezone().replace(tzinfo=None)
    sent = [
        await producer.send(delaying, b"at ms", deliver_at=due),
        await producer.send(delaying, b"at", deliver_at=datetime.fromtimestamp(due / 1000, UTC)),
        await producer.send(delaying, b"local", deliver_at=local),
        await producer.send(delaying, b"after", b"k", [("h", b"x")], delay=timedelta(seconds=0.7)),
        await producer.send(delaying, b"ms", delay=700, ttl=timedelta(minutes=1)),
        await producer.send(delaying, b"text", delay="700ms", partition=1),
        await producer.send(delaying, b"now"),
    ]
    for delivery in sent:
        await sdk.result(delivery)
    records = await came(bootstrap, delaying, 7, sdk)
    assert time.time_ns() // 1_000_000 >= due
    by_value = {record.value: record for record in records}
    assert {by_value[text].timestamp for text in (b"at ms", b"at", b"local")} == {due}
    assert ("h", b"x") in by_value[b"after"].headers
    assert by_value[b"text"].partition == 1
    assert by_value[b"now"].timestamp < due


async def test_send_and_wait(bootstrap: str, delaying: str, producer: Any) -> None:
    await producer.send_and_wait(delaying, b"v", b"k", delay="90m", ttl="1m")
    assert await pending(bootstrap, delaying) == {"k": 90 * 60_000}


@pytest.mark.parametrize("form", ["one for all", "a column", "of moments", "beside headers"])
async def test_send_many(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients, form: str
) -> None:
    keys = [b"a", b"b", b"c"]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    times: dict[str, Any] = {
        "one for all": {"delay": "1h"},
        "a column": {"delay": [timedelta(hours=1), None, 5000], "ttl": "1h"},
        "of moments": {"deliver_at": [tomorrow, None, None], "delay": [None, None, "5s"]},
        "beside headers": {"delay": ["1h", "1h", None], "headers": [None, [("h", b"1")], []]},
    }
    expected = {
        "one for all": {"a", "b", "c"},
        "a column": {"a", "c"},
        "of moments": {"a", "c"},
        "beside headers": {"a", "b"},
    }
    delivery = await producer.send_many(delaying, [b"1", b"2", b"3"], keys, **times[form])
    assert sum(run.records_count for run in await sdk.result(delivery)) == 3
    assert (await pending(bootstrap, delaying)).keys() == expected[form]


@pytest.mark.parametrize("headers", [None, "list", "map"])
@pytest.mark.parametrize("kind", ["int64", "timestamp"])
async def test_a_column_of_due_times(
    bootstrap: str,
    delaying: str,
    producer: Any,
    sdk: SdkClients,
    kind: str,
    headers: str | None,
) -> None:
    due = time.time_ns() // 1_000_000 + 500
    stamp = pa.int64() if kind == "int64" else pa.timestamp("us", "UTC")
    scale = 1 if kind == "int64" else 1000
    pairs = {"list": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))}
    pairs["map"] = pa.map_(pa.string(), pa.binary())
    own: list[Any] = [[("x", b"1"), ("y", b"2")], None, [], [("z", b"3")]]
    columns = {
        "value": pa.array([b"0", b"1", b"2", b"3"]),
        "due": pa.array([None, due * scale, due * scale, due * scale], pa.int64()).cast(stamp),
    }
    if headers is not None:
        rows = (
            own
            if headers == "map"
            else [row and [{"key": key, "value": value} for key, value in row] for row in own]
        )
        columns["own"] = pa.array(rows, pairs[headers])
    names = {} if headers is None else {"headers": "own"}
    table = pa.table(columns)
    for sent in (table.slice(0, 2), table.slice(2).to_batches()[0]):
        await sdk.result(await producer.send_arrow(delaying, sent, deliver_at="due", **names))
    records = sorted(await came(bootstrap, delaying, 4, sdk), key=lambda record: record.value)
    assert [record.timestamp == due for record in records] == [False, True, True, True]
    if headers is not None:
        kept = [
            [pair for pair in record.headers if not pair[0].startswith("qbus-")]
            for record in records
        ]
        assert kept == [row or [] for row in own]


async def test_a_delivery_is_cancelled(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients
) -> None:
    delivery = await producer.send(delaying, b"v", b"k", delay=LATER)
    assert await called(delivery.cancel) is True
    assert await called(delivery.cancel) is False
    assert await pending(bootstrap, delaying) == {}
    visible = await producer.send(delaying, b"visible")
    assert await called(visible.cancel) is False
    assert [record.value for record in await came(bootstrap, delaying, 1, sdk)] == [b"visible"]


async def test_a_delivery_is_rescheduled(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients
) -> None:
    delivery = await producer.send(delaying, b"v", b"k", delay=LATER)
    assert await called(delivery.reschedule, delay="10m") is True
    assert await pending(bootstrap, delaying) == {"k": pytest.approx(600_000, abs=5_000)}
    moment = datetime.now(UTC) + timedelta(seconds=0.3)
    assert await called(delivery.reschedule, deliver_at=moment) is True
    (record,) = await came(bootstrap, delaying, 1, sdk)
    assert (record.key, record.value) == (b"k", b"v")
    assert await called(delivery.reschedule, delay="10m") is False


async def test_orders_are_given_by_place_and_by_key(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients
) -> None:
    for _ in range(3):
        await producer.send(delaying, b"v", b"k", delay=LATER)
    place = await producer.send_and_wait(delaying, b"v", b"other", delay=LATER)
    assert await producer.reschedule(*place[:3], delay="2h") is True
    assert await producer.cancel_key(delaying, b"k") is True
    assert await producer.cancel_key(delaying, b"k") is False
    assert (await pending(bootstrap, delaying)).keys() == {"other"}
    assert await producer.cancel(*place[:3]) is True
    assert await producer.cancel(*place[:3]) is False
    assert await pending(bootstrap, delaying) == {}


async def test_many_orders_at_once_share_batches(
    bootstrap: str, delaying: str, producer: Any, sdk: SdkClients
) -> None:
    deliveries = [await producer.send(delaying, b"v", b"%d" % n, delay=LATER) for n in range(60)]
    answers = await asyncio.gather(*(called(one.cancel) for one in deliveries[:40]))
    assert answers == [True] * 40
    left = (await pending(bootstrap, delaying)).keys()
    assert left == {str(number) for number in range(40, 60)}
    answers = await asyncio.gather(*(called(one.cancel) for one in deliveries[30:]))
    assert answers == [False] * 10 + [True] * 20, "late ones among others in one batch"


async def test_a_topic_that_holds_nothing_back_is_named(
    bootstrap: str, topic: str, producer: Any
) -> None:
    attempts = (
        producer.send(topic, b"v", delay=LATER),
        producer.send_many(topic, [b"v"], delay=LATER),
        producer.send_arrow(topic, pa.table({"value": [b"v"], "due": [1]}), deliver_at="due"),
        producer.cancel(topic, 0, 0),
        producer.cancel_key(topic, b"k"),
    )
    for attempt in attempts:
        with pytest.raises(ConfigError, match=f"{topic} holds nothing back: qbus.delay.enable"):
            await attempt
    async with Admin(bootstrap) as admin:
        await admin.alter_config(ConfigKind.TOPIC, topic, set=ENABLED)
    await producer.send_and_wait(topic, b"v", delay=LATER)


async def test_an_order_to_a_topic_that_stopped_to_hold_back_found_nothing(
    bootstrap: str, delaying: str, producer: Any
) -> None:
    place = await (await called(producer.send, delaying, b"v", partition=0, delay=LATER))
    async with Admin(bootstrap) as admin:
        await admin.alter_config(ConfigKind.TOPIC, delaying, set={"qbus.delay.enable": "false"})
    # The producer goes by what it heard a moment ago.
    assert await producer.cancel(delaying, 0, place.offset) is False


async def test_orders_name_what_they_are_about(delaying: str, producer: Any) -> None:
    with pytest.raises(TypeError, match="name an offset"):
        await producer.cancel_key(delaying, None)
    with pytest.raises(TypeError):
        await producer.cancel(delaying, None, 0)
    with pytest.raises(TypeError):
        await producer.reschedule(delaying, None, 0, delay=LATER)


async def test_who_came_with_a_refused_record_hears_of_that(delaying: str, producer: Any) -> None:
    sent = [
        producer.send(delaying, b"v", partition=0, delay=delay) for delay in ("1h", "9000d", "1h")
    ]
    if inspect.isawaitable(sent[0]):
        sent = await asyncio.gather(*sent)
    own, others = r"^it is to be delivered in 9000d, and", "came with a record that was refused: "
    for delivery, why in zip(sent, (others, own, others), strict=True):
        with pytest.raises(ApiError, match=why):
            await delivery


async def test_no_topic_is_created_for_what_is_delayed(
    bootstrap: str, producer: Any, name: str
) -> None:
    for attempt in (producer.send(name, b"v", delay=LATER), producer.cancel(name, 0, 0)):
        with pytest.raises(ConfigError, match=f"topic {name} does not exist"):
            await attempt
    async with Admin(bootstrap) as admin:
        assert name not in {topic.name for topic in await admin.list_topics()}


async def test_what_is_no_time_is_refused_at_once(delaying: str, producer: Any) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"deliver_at": 5, "delay": 5}, "exclude each other"),
        ({"ttl": 5}, "ttl is for records with"),
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": timedelta(-1)}, "delay must not be negative"),
        ({"delay": "soon"}, "'soon' is no duration"),
        ({"delay": 1.5}, "not float"),
        ({"deliver_at": True}, "not bool"),
        ({"deliver_at": "noon"}, "not str"),
        ({"deliver_at": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        ({"delay": 5, "ttl": -1}, "ttl must not be negative"),
    ]
    for times, why in wrong:
        with pytest.raises((TypeError, ValueError), match=why):
            await producer.send(delaying, b"v", **times)
    with pytest.raises(ValueError, match="2 times of delay for 1 values"):
        await producer.send_many(delaying, [b"v"], delay=[1, 2])
    with pytest.raises(ValueError, match="needs deliver_at or delay"):
        await producer.reschedule(delaying, 0, 0)
    with pytest.raises(ValueError, match="must not be negative"):
        await producer.cancel(delaying, 0, -1)
    with pytest.raises(ApiError, match="no partition 17"):
        await producer.cancel(delaying, 17, 0)
    with pytest.raises(KeyError, match="no column 'due'"):
        await producer.send_arrow(delaying, pa.table({"value": [b"v"]}), deliver_at="due")
    with pytest.raises(TypeError, match="timestamp or int64"):
        await producer.send_arrow(
            delaying, pa.table({"value": [b"v"], "due": ["x"]}), deliver_at="due"
        )


async def test_too_far_ahead_fails_the_delivery(
    delaying: str, producer: Any, sdk: SdkClients
) -> None:
    delivery = await producer.send(delaying, b"v", delay=timedelta(days=9999))
    with pytest.raises(ApiError, match=r"in 9999d, and qbus\.delay\.max\.ms .* allows 730d"):
        await sdk.result(delivery)
    with pytest.raises(ApiError, match=r"in 9999d, and qbus\.delay\.max\.ms .* allows 730d"):
        await called(delivery.cancel)


async def test_without_an_answer_nothing_is_claimed(bootstrap: str, delaying: str) -> None:
    async with Producer(bootstrap, acks=0) as producer:
        delivery = await producer.send(delaying, b"v", delay=LATER)
        with pytest.raises(QbusError, match="acks=0"):
            await delivery.cancel()


async def test_a_closed_producer_gives_no_orders(
    bootstrap: str, delaying: str, sdk: SdkClients
) -> None:
    async with sdk.producer(bootstrap) as producer:
        delivery = await producer.send(delaying, b"v", delay=LATER)
    with pytest.raises(QbusError, match="closed"):
        await called(delivery.cancel)


async def test_a_producers_batches_are_found_though_they_are_hidden(
    bootstrap: str, delaying: str
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(delaying, b"%d" % number, partition=0)
            await producer.send_and_wait(delaying, b"%d" % number, partition=0, delay=LATER)
        async with Admin(bootstrap) as admin:
            place = TopicPartition(delaying, 0)
            (state,) = (await admin.describe_producers([place]))[place]
            (latest,) = (await admin.list_offsets({place: LATEST})).values()
    assert latest.offset == 5
    cluster = Cluster(bootstrap, "test", 10.0)
    try:
        await cluster.need([delaying])
        found = await find_producer(cluster, place, 0, latest.offset, state.producer_id)
    finally:
        await cluster.close()
    assert [(one.base_offset, one.base_sequence) for one in found] == [(n, n) for n in range(6)]
