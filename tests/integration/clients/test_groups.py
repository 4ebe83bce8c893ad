"""Groups on a real coordinator: share, take over, resume; also with members of another kind."""

import asyncio
import re
import time
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from qbus.clients import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.support.polling import flat

from .reading import read

pytestmark = pytest.mark.integration


def member(bootstrap: str, topic: str, **options: object) -> Consumer:
    defaults: dict[str, object] = {
        "group": topic,
        "offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    consumer = Consumer(bootstrap, **defaults | options)  # type: ignore[arg-type]
    consumer.subscribe([topic])
    return consumer


async def shared(consumers: Sequence[Consumer], total: int = 3, within: float = 20.0) -> None:
    """Let all poll until they have ``total`` partitions between them, and each has some."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        await asyncio.gather(*(consumer.poll(0.1) for consumer in consumers))
        owned = [partition for consumer in consumers for partition in consumer.assignment]
        if all(c.assignment for c in consumers) and len(owned) == len(set(owned)) == total:
            return
    raise AssertionError([consumer.assignment for consumer in consumers])


def lines(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_a_group_resumes_where_it_stopped(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, lines(10), partition=0)
        async with member(bootstrap, topic, max_poll_records=4) as consumer:
            assert len(await read(consumer, 4)) == 4
        async with member(bootstrap, topic) as consumer:
            assert [record.value for record in await read(consumer, 6)] == lines(10)[4:]


async def test_members_share_and_take_over(bootstrap: str, topic: str, admin: Admin) -> None:
    first, second = member(bootstrap, topic), member(bootstrap, topic)
    await shared([first])
    await shared([first, second])
    described = await admin.describe_group(topic)
    assert (described.state, described.protocol) == ("Stable", "range")
    assert sorted(len(m.assignment) for m in described.members) == [1, 2]
    await first.close()
    await shared([second])
    assert [p.partition for p in second.assignment] == [0, 1, 2]
    await second.close()
    assert (await admin.describe_group(topic)).state == "Empty"


async def test_every_record_is_read_through_rebalances(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_bytes=500) as producer:
        members = [member(bootstrap, topic, max_poll_records=50)]
        seen: set[tuple[int, int]] = set()
        for turn in range(30):
            await producer.send_many(topic, lines(100))
            if turn in {5, 10}:
                members.append(member(bootstrap, topic, max_poll_records=50))
            if turn in {15, 20}:
                await members.pop(0).close()
            for polled in await asyncio.gather(*(m.poll(0.05) for m in members)):
                seen |= {(record.partition, record.offset) for record in flat(polled)}
        await producer.flush()
        deadline = time.monotonic() + 20
        while len(seen) < 3000 and time.monotonic() < deadline:
            for polled in await asyncio.gather(*(m.poll(0.05) for m in members)):
                seen |= {(record.partition, record.offset) for record in flat(polled)}
        await asyncio.gather(*(m.close() for m in members))
    assert len(seen) == 3000


async def test_a_commit_of_an_old_generation_is_refused(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, lines(3), partition=0)
    slow = member(bootstrap, topic, auto_commit=False, rebalance_timeout_ms=500)
    await read(slow, 3)
    eager = member(bootstrap, topic, rebalance_timeout_ms=500)
    await shared([eager])  # the slow one did not join again in time
    with pytest.raises(ApiError) as caught:
        await slow.commit()
    assert caught.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    await shared([slow, eager])
    await asyncio.gather(slow.close(), eager.close())


async def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    other = member(bootstrap, topic, instance_id="other")
    static = member(bootstrap, topic, instance_id="static")
    await shared([other, static])
    before = {m.instance_id: m.assignment for m in (await admin.describe_group(topic)).members}
    await static.close()
    static = member(bootstrap, topic, instance_id="static")
    await shared([other, static])
    after = {m.instance_id: m.assignment for m in (await admin.describe_group(topic)).members}
    assert after == before
    await asyncio.gather(other.close(), static.close())


async def test_our_members_and_aiokafkas_share_a_group(bootstrap: str, topic: str) -> None:
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=6000,
    )
    await theirs.start()
    ours = member(bootstrap, topic)
    try:
        deadline = time.monotonic() + 20
        owned: list[TopicPartition] = []
        while time.monotonic() < deadline and not (
            ours.assignment and theirs.assignment() and len(set(owned)) == len(owned) == 3
        ):
            await ours.poll(0.1)
            await theirs.getmany(timeout_ms=100)
            owned = [*ours.assignment, *(TopicPartition(*p) for p in theirs.assignment())]
        assert sorted(owned) == [TopicPartition(topic, index) for index in range(3)]
    finally:
        await theirs.stop()
        await ours.close()


async def test_cooperative_members_read_on_while_others_join(bootstrap: str, topic: str) -> None:
    revoked: list[TopicPartition] = []
    options = {"assignors": ["cooperative-sticky"]}
    first = member(bootstrap, topic, on_revoked=revoked.extend, **options)
    await shared([first])
    second = member(bootstrap, topic, **options)
    sizes = set()
    deadline = time.monotonic() + 20
    while len(second.assignment) < 1 and time.monotonic() < deadline:
        await asyncio.gather(first.poll(0.02), second.poll(0.02))
        sizes.add(len(first.assignment))
    await shared([first, second])
    assert sizes <= {3, 2}, "never without what it keeps"
    assert revoked == second.assignment
    await asyncio.gather(first.close(), second.close())


async def test_an_instance_that_is_replaced_is_fenced(bootstrap: str, topic: str) -> None:
    lost: list[TopicPartition] = []
    old = member(bootstrap, topic, instance_id="i", on_lost=lost.extend)
    await shared([old])
    new = member(bootstrap, topic, instance_id="i")
    await shared([new])
    with pytest.raises(ApiError) as caught:
        await read(old, 1)
    assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert not caught.value.retriable
    assert len(lost) == 3
    await asyncio.gather(old.close(), new.close())


async def test_topics_and_partitions_that_appear_are_shared_out(
    bootstrap: str, topic: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.clients.consumer.coordinator._REFRESH_INTERVAL", 0.2)
    members = [member(bootstrap, topic), member(bootstrap, topic)]
    for one in members:
        one.subscribe(re.compile(f"{topic}(-more)?"))
    await shared(members)
    await admin.create_topic(f"{topic}-more", partitions=2)
    await shared(members, total=5)
    await admin.create_partitions(topic, 4)
    await shared(members, total=6)
    await admin.delete_topic(f"{topic}-more")
    await shared(members, total=4)
    await asyncio.gather(*(one.close() for one in members))


async def test_offsets_keep_their_metadata_and_order(bootstrap: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    consumer = member(bootstrap, topic, auto_commit=False)
    await shared([consumer])
    commits = [consumer.commit({place: OffsetAndMetadata(n, f"to {n}")}) for n in range(1, 20)]
    await asyncio.gather(*commits)
    assert (await consumer.committed([place]))[place] == OffsetAndMetadata(19, "to 19", -1)
    await consumer.close()
