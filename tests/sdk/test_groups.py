"""Consumer groups, by the sync and the async clients, on both servers."""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from qbus.aio import Admin, Producer
from qbus.clients import TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.sdk.conftest import PARTITIONS
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import SdkClients
from tests.support.waiting import eventually

EVERYTHING = set(range(PARTITIONS))
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
each_assignor = pytest.mark.parametrize("assignor", ASSIGNORS)


class Members:
    """Makes members of one group, which reads one topic."""

    def __init__(self, sdk: SdkClients, bootstrap: str, topic: str, **options: Any) -> None:
        self._sdk = sdk
        self._bootstrap = bootstrap
        self._topic = topic
        self._options = {
            "group": topic,
            "offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6_000,
            **options,
        }

    def join(self, **options: Any) -> Any:
        """Return another subscribed member; it joins when it polls."""
        consumer = self._sdk.consumer(self._bootstrap, **{**self._options, **options})
        consumer.subscribe([self._topic])
        return consumer


def owned(consumer: Any) -> set[int]:
    return {partition.partition for partition in consumer.assignment}


async def settle(members: Iterable[Any], others: Callable[[], set[int]] = set) -> list[set[int]]:
    """Poll until the members share everything, and each has some; what each has."""
    members = list(members)

    async def is_shared() -> bool:
        await asyncio.gather(*(member.poll(0.05) for member in members))
        shares = [*map(owned, members), others()]
        alone = others is set
        return (
            all(shares[: len(members) if alone else None])
            and sum(map(len, shares)) == PARTITIONS
            and set().union(*shares) == EVERYTHING
        )

    await eventually(is_shared)
    return [owned(member) for member in members]


@each_assignor
async def test_members_share_and_take_over(
    bootstrap: str, topic: str, sdk: SdkClients, assignor: str
) -> None:
    members = Members(sdk, bootstrap, topic, assignors=[assignor])
    async with members.join() as first:
        assert await settle([first]) == [EVERYTHING]
        async with members.join() as second:
            assert sorted(map(len, await settle([first, second]))) == [1, 2]
            async with Admin(bootstrap) as admin:
                described = await admin.describe_group(topic)
            assert described.protocol == assignor
            assert described.state == "Stable"
        assert await settle([first]) == [EVERYTHING]
    async with Admin(bootstrap) as admin:
        assert (await admin.describe_group(topic)).state == "Empty"


async def test_cooperative_members_keep_what_they_may(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    """Only what moves is revoked, and nothing else stops (KIP-429)."""
    revoked: list[TopicPartition] = []
    members = Members(sdk, bootstrap, topic, assignors=["cooperative-sticky"])
    async with members.join(on_revoked=revoked.extend) as first:
        await settle([first])
        async with members.join() as second:
            kept, taken = await settle([first, second])
            assert {partition.partition for partition in revoked} == taken
            assert kept == EVERYTHING - taken


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_callbacks_tell_what_comes_and_goes(
    bootstrap: str, topic: str, sdk: SdkClients, assignor: str
) -> None:
    log: list[tuple[str, set[int]]] = []

    def note(what: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: log.append((what, {p.partition for p in partitions}))

    members = Members(sdk, bootstrap, topic, assignors=[assignor])
    callbacks = {"on_assigned": note("assigned"), "on_revoked": note("revoked")}
    async with members.join(**callbacks) as first:
        await settle([first])
        assert [entry for entry in log if entry[1]] == [("assigned", EVERYTHING)]
        async with members.join() as second:
            await settle([first, second])
    held: set[int] = set()
    for what, partitions in log:
        if what == "assigned":
            assert not held & partitions
            held |= partitions
        else:
            assert held >= partitions
            held -= partitions
    assert held == set()


async def test_offsets_are_committed_before_partitions_go(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(300):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    members = Members(sdk, bootstrap, topic, auto_commit_interval_ms=60_000)
    async with members.join() as first:
        assert len(await read(first, 300)) == 300
        async with members.join() as second:
            await settle([first, second])
            assert await second.poll(0.5) == []
            committed = await second.committed()
            assert {offset.offset for offset in committed.values()} == {100}


async def test_a_commit_of_an_old_generation_is_refused(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(3):
            await producer.send(topic, b"v", partition=0)
    members = Members(sdk, bootstrap, topic, rebalance_timeout_ms=500, auto_commit=False)
    async with members.join() as slow, members.join() as eager:
        await read(slow, 3)
        await settle([eager])  # the slow one did not join again in time
        with pytest.raises(ApiError) as caught:
            await slow.commit()
        assert caught.value.code in {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        }
        await settle([slow, eager])


async def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    members = Members(sdk, bootstrap, topic)
    revoked: list[TopicPartition] = []
    async with members.join(instance_id="other", on_revoked=revoked.extend) as other:
        async with members.join(instance_id="static") as static:
            await settle([other, static])
            before = owned(static)
        revoked.clear()
        async with members.join(instance_id="static") as static:
            await settle([other, static])
            assert owned(static) == before
        assert revoked == []


async def test_the_same_instance_twice_is_fenced(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    members = Members(sdk, bootstrap, topic, instance_id="one")
    lost: list[TopicPartition] = []
    async with members.join(on_lost=lost.extend) as first:
        await settle([first])
        async with members.join() as second:
            await settle([second])
            with pytest.raises(ApiError) as caught:
                await read(first, 1)
            assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
            assert not caught.value.retriable
            assert {partition.partition for partition in lost} == EVERYTHING


async def test_topics_and_partitions_that_appear_are_shared_out(
    bootstrap: str, topic: str, sdk: SdkClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.clients.consumer.coordinator._REFRESH_INTERVAL", 0.2)
    members = Members(sdk, bootstrap, topic)

    async def share(total: int) -> None:
        async def is_shared() -> bool:
            await asyncio.gather(first.poll(0.05), second.poll(0.05))
            shares = [*first.assignment, *second.assignment]
            is_whole = len(shares) == len(set(shares)) == total
            return is_whole and bool(first.assignment and second.assignment)

        await eventually(is_shared)

    async with members.join() as first, members.join() as second, Admin(bootstrap) as admin:
        for member in (first, second):
            member.subscribe(re.compile(f"{topic}(-more)?"))
        await share(PARTITIONS)
        await admin.create_topic(f"{topic}-more", partitions=2)
        await share(PARTITIONS + 2)
        await admin.create_partitions(topic, PARTITIONS + 1)
        await share(PARTITIONS + 3)
        await admin.delete_topic(f"{topic}-more")
        await share(PARTITIONS + 1)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_members_of_librdkafka_and_ours_share_a_group(
    bootstrap: str, topic: str, sdk: SdkClients, assignor: str
) -> None:
    theirs = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6_000,
        }
    )
    theirs.subscribe([topic])

    def their_share() -> set[int]:
        theirs.poll(0.05)
        return {partition.partition for partition in theirs.assignment()}

    members = Members(sdk, bootstrap, topic, assignors=[assignor])
    async with members.join() as ours:
        try:
            await settle([ours], their_share)
        finally:
            await asyncio.to_thread(theirs.close)
        assert await settle([ours]) == [EVERYTHING]


async def test_members_of_aiokafka_and_ours_share_a_group(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    )
    async with theirs, Members(sdk, bootstrap, topic).join() as ours:
        await settle([ours], lambda: {place.partition for place in theirs.assignment()})


async def test_a_member_that_works_for_long_stays(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    """Heartbeats go on between polls: the session is much shorter than the work."""
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"v", partition=0)
    members = Members(sdk, bootstrap, topic, session_timeout_ms=600, auto_commit=False)
    async with members.join() as consumer:
        await read(consumer, 1)
        await asyncio.sleep(1.5)
        await consumer.commit()
        assert records(await consumer.poll(0.2)) == []


async def test_automatic_commits_lose_nothing_through_rebalances(
    sdk: SdkClients, bootstrap: str, topic: str
) -> None:
    """Members come and go while records are sent; each commits before its partitions go."""
    group = Members(sdk, bootstrap, topic, max_poll_records=50)
    members = [group.join()]
    seen: set[tuple[int, int]] = set()

    async def poll() -> None:
        for polled in await asyncio.gather(*(member.poll(0.05) for member in members)):
            seen.update((record.partition, record.offset) for record in records(polled))

    async with Producer(bootstrap, batch_bytes=500) as producer:
        for turn in range(30):
            await producer.send_many(topic, [b"%d" % number for number in range(100)])
            if turn in {5, 10}:
                members.append(group.join())
            if turn in {15, 20}:
                await members.pop(0).close()
            await poll()
        await producer.flush()
    async with asyncio.timeout(30):
        while len(seen) < 3000:
            await poll()
    await asyncio.gather(*(member.close() for member in members))
    assert len(seen) == 3000
