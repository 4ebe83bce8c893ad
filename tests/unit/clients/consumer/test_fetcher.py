"""Fetching from several brokers at once, within one bound of memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qbus.clients import Consumer, TopicPartition
from qbus.clients.consumer.fetcher import LEAST, FetchWindow
from qbus.clients.net.pool import ConnectionGroup
from qbus.records import build_batch
from qbus.wire import ApiKey
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually


def batch(value: bytes) -> bytes:
    return bytes(build_batch([(None, value, (), 5)]))


@pytest.mark.parametrize("prefetch", [3000, 60_000_000])
async def test_a_broker_with_records_does_not_wait_for_those_without(prefetch: int) -> None:
    """What was reserved for the answers of two brokers left nothing for the third, again and again.

    Whichever has the records, they come: each broker has a share of its own.
    """
    for leader in (1, 2, 3):
        async with (
            FakeCluster(3, {"t": 3}) as cluster,
            Consumer(
                cluster.bootstrap,
                prefetch_bytes=prefetch,
                fetch_max_bytes=prefetch,
                fetch_max_wait_ms=5,
            ) as consumer,
        ):
            for partition in range(3):
                cluster.move("t", partition, partition + 1)
            cluster.publish()
            consumer.assign([("t", partition, 0) for partition in range(3)])
            for _ in range(20):  # the others are asked over and over
                assert await consumer.poll(0.01) == []
            cluster.logs["t", leader - 1].append(batch(b"here"))
            cluster.nodes[leader].wake()
            polled = await consumer.poll(10.0)
            assert [(one.partition, len(one)) for one in polled] == [(leader - 1, 1)]


BATCH = 20_000
WINDOW = 50_000


@asynccontextmanager
async def filled(partitions: int, batches: int) -> AsyncIterator[Consumer]:
    """A consumer of a broker whose partitions are full of records, a batch for each."""
    async with (
        FakeCluster(1, {"t": partitions}) as cluster,
        Consumer(
            cluster.bootstrap,
            fetch_max_bytes=WINDOW,
            partition_max_bytes=WINDOW,
            max_poll_records=1,
            fetch_max_wait_ms=5,
        ) as consumer,
    ):
        for partition in range(partitions):
            for _ in range(batches):
                cluster.logs["t", partition].append(batch(bytes(BATCH)))
        consumer.assign([("t", partition, 0) for partition in range(partitions)])
        yield consumer


async def test_the_next_request_is_on_its_way_when_a_reader_that_waited_begins() -> None:
    """The broker works while records are read: it did not, in one thread."""
    async with filled(1, 20) as consumer:
        assert await consumer.poll(10.0)
        connection = await consumer._cluster.connection(1, ConnectionGroup.FETCH)
        assert connection.load == 1


def held(consumer: Consumer) -> dict[int, int]:
    states = consumer._assignment.states
    return {partition.partition: state.held_bytes for partition, state in states.items()}


async def poll_until_asked(consumer: Consumer) -> None:
    """Poll until some broker is asked, which has nothing yet."""
    while not consumer._fetcher._fetches:
        assert await consumer.poll(0.01) == []


async def at_rest(consumer: Consumer) -> None:
    """Nothing is being fetched."""
    await eventually(lambda: not consumer._fetcher._fetches)


async def test_no_more_than_two_answers_wait_for_the_reader() -> None:
    async with filled(partitions=4, batches=20) as consumer:
        await consumer.poll(10.0)
        await at_rest(consumer)
        assert 2 * WINDOW <= sum(held(consumer).values()) + BATCH < 4 * WINDOW


async def test_a_small_answer_is_handed_over_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To ask takes as long as to hand over, and it is the reader who waits."""
    monkeypatch.setattr("qbus.clients.consumer.fetcher._SOON", 0.5)
    async with FakeCluster(1, {"t": 1}) as cluster, Consumer(cluster.bootstrap) as consumer:
        consumer.assign([("t", 0, 0)])
        is_asked = consumer._fetcher._fetches
        await poll_until_asked(consumer)
        cluster.logs["t", 0].append(batch(b"here"))
        cluster.nodes[1].wake()
        polled = await consumer.poll(10.0)
        assert [len(one) for one in polled] == [1]
        assert not is_asked
        await eventually(lambda: bool(is_asked))  # though the reader does not come back


async def test_the_leader_of_a_refused_partition_is_looked_up_while_others_are_read() -> None:
    async with FakeCluster(2, {"t": 2}) as cluster, Consumer(cluster.bootstrap) as consumer:
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        for partition in range(2):
            cluster.move("t", partition, 1)
        cluster.publish()
        await poll_until_asked(consumer)
        cluster.logs["t", 0].append(batch(bytes(200_000)))
        cluster.move("t", 1, 2)  # of which the consumer is not told
        cluster.nodes[1].wake()
        for node in cluster.nodes.values():
            node.requests.clear()
        assert await consumer.poll(10.0)
        await eventually(
            lambda: any(node.asked(ApiKey.METADATA) for node in cluster.nodes.values())
        )


async def test_what_is_paused_does_not_keep_others_waiting() -> None:
    async with filled(partitions=3, batches=6) as consumer:
        await consumer.poll(10.0)
        await at_rest(consumer)
        full = [TopicPartition("t", index) for index, nbytes in held(consumer).items() if nbytes]
        (other,) = {TopicPartition("t", index) for index in range(3)} - {*full[:2]}
        consumer.pause(full[:2])
        seen = 0
        while seen < 6:
            seen += sum(len(one) for one in await consumer.poll(10.0))
        assert consumer.position(*other) == 6


async def test_everything_comes_whatever_the_reader_s_pace() -> None:
    async with filled(partitions=5, batches=7) as consumer:
        seen: Counter[int] = Counter()
        async with asyncio.timeout(30):
            async for record in consumer:
                seen[record.partition] += 1
                if seen.total() == 35:
                    break
        assert set(seen.values()) == {7}


MOST = 50 * 1024 * 1024


def test_the_window_grows_while_full_answers_take_long() -> None:
    window = FetchWindow(MOST)
    asked = []
    for _ in range(6):
        asked.append(window.nbytes)
        window.answered(window.nbytes, 0.1, is_awaited=True)
    assert asked == [LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST, MOST, MOST]


@pytest.mark.parametrize(
    ("nbytes", "seconds", "why"),
    [(LEAST, 0.005, "more would not come sooner"), (LEAST // 3, 0.1, "there was no more")],
)
def test_it_stays_where_more_would_not_help(nbytes: int, seconds: float, why: str) -> None:
    window = FetchWindow(MOST)
    window.answered(nbytes, seconds, is_awaited=True)
    assert window.nbytes == LEAST, why


def test_the_window_shrinks_while_nobody_waits() -> None:
    window = FetchWindow(MOST)
    window.answered(LEAST, 0.1, is_awaited=True)
    window.answered(LEAST, 0.1, is_awaited=False)
    assert window.nbytes == 2 * LEAST * 7 // 8
    for _ in range(20):
        window.answered(LEAST, 0.1, is_awaited=False)
    assert window.nbytes == LEAST


def test_small_answers_do_not_grow_the_window() -> None:
    window = FetchWindow(MOST)
    for _ in range(20):
        window.answered(LEAST, 0.1, is_awaited=True)
    assert window.nbytes == 2 * LEAST


def test_a_lower_limit_holds() -> None:
    window = FetchWindow(1000)
    window.answered(1000, 0.1, is_awaited=True)
    window.answered(1000, 0.1, is_awaited=False)
    assert window.nbytes == 1000
