"""Our consumers in groups of the consumer protocol (KIP-848), against a broker of its own."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qbus
from qbus.clients import Admin, Consumer, Producer
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ConfigError, ErrorCode
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

FAST = (
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.heartbeat.interval.ms=200",
)
PARTITIONS = 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = [word for setting in FAST for word in ("-o", setting)]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        yield broker


async def produce(bootstrap: str, *numbers: int, topic: str = "t") -> None:
    async with Producer(bootstrap) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def make_topic(bootstrap: str, name: str = "t", partitions: int = PARTITIONS) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions)


def consumer(broker: BrokerProcess, **options: Any) -> Consumer:
    defaults = {"group": "g", "group_protocol": "consumer", "offset_reset": "earliest"}
    return Consumer(broker.bootstrap, **(defaults | options))


async def poll_until(
    consumers: list[Consumer], is_enough: Callable[[], bool], read: list[Any] | None = None
) -> None:
    deadline = time.monotonic() + 20
    while not is_enough():
        assert time.monotonic() < deadline, [one.assignment for one in consumers]
        for one in consumers:
            for found in await one.poll(0.05):
                if read is not None:
                    read += [(record.partition, record.offset) for record in found]


def shared_out(*consumers: Consumer) -> bool:
    """Whether each partition is with one of the consumers, and about as many with each."""
    counts = [len(one.assignment) for one in consumers]
    return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1


async def test_members_come_and_go_and_read_everything_once(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    await produce(broker.bootstrap, *range(600))
    read: list[Any] = []
    calls: list[tuple[str, int]] = []
    first = consumer(
        broker,
        on_assigned=lambda found: calls.append(("assigned", len(found))),
        on_revoked=lambda found: calls.append(("revoked", len(found))),
    )
    async with first:
        first.subscribe(["t"])
        await poll_until([first], lambda: len(read) == 600, read)
        async with consumer(broker) as second:
            second.subscribe(["t"])
            await poll_until([first, second], lambda: shared_out(first, second), read)
            await produce(broker.bootstrap, *range(600, 1200))
            await poll_until([first, second], lambda: len(read) >= 1200, read)
        await poll_until([first], lambda: shared_out(first), read)
        await produce(broker.bootstrap, *range(1200, 1800))
        await poll_until([first], lambda: len(read) >= 1800, read)
    assert len(set(read)) == len(read) == 1800
    assert calls == [
        ("assigned", 6),
        ("revoked", 3),
        ("assigned", 0),
        ("assigned", 3),
        ("revoked", 6),
    ]
    async with Admin(broker.bootstrap) as admin:
        offsets = await admin.group_offsets("g")
        assert sum(offset.committed_offset for offset in offsets) == 1800


async def test_nobody_stops_but_for_what_moves(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    async with consumer(broker) as first, consumer(broker) as second:
        first.subscribe(["t"])
        await poll_until([first], lambda: shared_out(first))
        second.subscribe(["t"])
        seen: set[int] = set()
        while not shared_out(first, second):
            await poll_until([first, second], lambda: True)
            await first.poll(0.02)
            await second.poll(0.02)
            seen.add(len(first.assignment))
        assert min(seen) >= PARTITIONS // 2


async def test_a_member_that_dies_is_missed(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    async with consumer(broker) as first:
        first.subscribe(["t"])
        second = consumer(broker)
        second.subscribe(["t"])
        await poll_until([first, second], lambda: shared_out(first, second))
        await second._coordinator._rebalance._stop()  # type: ignore[union-attr]
        await poll_until([first], lambda: shared_out(first))
        await second.close()


async def test_one_that_does_not_poll_leaves_and_comes_back(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    lost: list[int] = []
    async with (
        consumer(
            broker, max_poll_interval_ms=1000, on_lost=lambda found: lost.append(len(found))
        ) as slow,
        consumer(broker) as other,
    ):
        slow.subscribe(["t"])
        await poll_until([slow], lambda: shared_out(slow))
        other.subscribe(["t"])
        await poll_until([slow, other], lambda: shared_out(slow, other))
        await poll_until([other], lambda: shared_out(other))
        await poll_until([slow, other], lambda: shared_out(slow, other))
    assert lost == [3]


async def test_a_static_member_restarts_without_anybody_noticing(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    calls: list[int] = []
    async with consumer(broker, on_assigned=lambda found: calls.append(len(found))) as other:
        other.subscribe(["t"])
        async with consumer(broker, instance_id="i") as first:
            first.subscribe(["t"])
            await poll_until([other, first], lambda: shared_out(other, first))
            before = first.assignment
        calls.clear()
        async with consumer(broker, instance_id="i") as second:
            second.subscribe(["t"])
            await poll_until([other, second], lambda: shared_out(other, second))
            assert second.assignment == before
            assert calls == []
            third = consumer(broker, instance_id="i")
            third.subscribe(["t"])
            with pytest.raises(ApiError) as refused:
                await poll_until([third], lambda: False)
            assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
            await third.close()


async def test_commits_outlive_a_change_of_the_epoch(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    await produce(broker.bootstrap, *range(60))
    async with consumer(broker, auto_commit=False) as first:
        first.subscribe(["t"])
        read: list[Any] = []
        await poll_until([first], lambda: len(read) == 60, read)
        async with Admin(broker.bootstrap) as admin:
            await admin.create_partitions("t", PARTITIONS + 1)  # a new epoch, unknown here yet
            await first.commit()
            offsets = await admin.group_offsets("g")
        assert {(one.partition, one.committed_offset) for one in offsets} == {
            (index, 10) for index in range(PARTITIONS)
        }


async def test_what_is_committed_when_a_partition_goes_is_where_the_next_one_begins(
    broker: BrokerProcess,
) -> None:
    await make_topic(broker.bootstrap)
    read: Counter[tuple[int, int]] = Counter()
    stop, all_read = asyncio.Event(), asyncio.Event()

    async def load() -> None:
        for number in range(0, 6000, 60):
            await produce(broker.bootstrap, *range(number, number + 60))
            await asyncio.sleep(0.02)

    async def member(number: int) -> None:
        await asyncio.sleep(number * 0.3)
        for life in range(2):
            async with consumer(broker, client_id=f"m{number}-{life}") as one:
                one.subscribe(["t"])
                ends = time.monotonic() + 1.5 + 0.2 * number
                while time.monotonic() < ends or (life and not stop.is_set()):
                    for found in await one.poll(0.05):
                        read.update((record.partition, record.offset) for record in found)
                    if len(read) == 6000:
                        all_read.set()

    async def finish() -> None:
        await load()
        await all_read.wait()
        stop.set()

    async with asyncio.timeout(60):
        await asyncio.gather(finish(), *(member(number) for number in range(4)))
    assert len(read) == 6000
    assert set(read.values()) == {1}


async def test_the_group_is_described_and_reset_by_the_administrators_client(
    broker: BrokerProcess,
) -> None:
    await make_topic(broker.bootstrap)
    await produce(broker.bootstrap, *range(60))
    async with Admin(broker.bootstrap) as admin:
        async with consumer(broker, remote_assignor="range") as first:
            first.subscribe(["t"])
            read: list[Any] = []
            await poll_until([first], lambda: len(read) == 60, read)
            await first.commit()
            described = await admin.describe_group("g")
            assert (described.type, described.state) == ("consumer", "Stable")
            assert described.protocol == "range"
            assert described.epoch == 1
            (member,) = described.members
            assert (member.epoch, member.is_classic) == (1, False)
            assert member.assignment == tuple(TopicPartition("t", n) for n in range(PARTITIONS))
            assert member.target == member.assignment
            (listed,) = await admin.list_groups(types=["consumer"])
            assert (listed.group, listed.type) == ("g", "consumer")
            with pytest.raises(ApiError):
                await admin.delete_group("g")
        await admin.alter_group_offsets("g", {TopicPartition("t", 0): 3})
        assert (await admin.group_offsets("g"))[0].committed_offset == 3
        await admin.delete_group("g")
        with pytest.raises(ApiError) as missing:
            await admin.describe_group("g")
        assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_blocking_consumer_reads_as_a_member_too(broker: BrokerProcess) -> None:
    asyncio.run(make_topic(broker.bootstrap))
    asyncio.run(produce(broker.bootstrap, *range(600)))
    options: Any = {"group": "g", "group_protocol": "consumer", "offset_reset": "earliest"}
    with qbus.Consumer(broker.bootstrap, consumer_timeout_ms=3000, **options) as one:
        one.subscribe(["t"])
        read = [(record.partition, record.offset) for record in one]
    assert len(set(read)) == len(read) == 600


async def test_an_assignor_that_the_broker_has_not_is_an_error(broker: BrokerProcess) -> None:
    await make_topic(broker.bootstrap)
    async with consumer(broker, remote_assignor="magic") as one:
        one.subscribe(["t"])
        with pytest.raises(ApiError) as refused:
            await poll_until([one], lambda: False)
        assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="group_protocol"):
        Consumer("h:1", group="g", group_protocol="modern")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="remote_assignor"):
        Consumer("h:1", group="g", remote_assignor="range")
