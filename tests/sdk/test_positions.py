"""Positions of consumers: iteration, pauses, times, lag, patterns, commits."""

import asyncio
import re
from typing import Any

import pytest

from qbus.clients import OffsetAndMetadata, TopicPartition
from qbus.errors import ConfigError
from tests.sdk.conftest import PARTITIONS, create_topic
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import SdkClients
from tests.sdk.test_consuming import HOUR, THEN, fill, numbers
from tests.support.waiting import eventually


async def test_polls_return_records_by_partition(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 30, partition=None)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        while sum(map(len, found.values())) < 30:
            for part in await consumer.poll(1.0):
                assert part.topic == topic
                assert len(part) == len(part.records) == len(list(part))
                assert {record.partition for record in part} == {part.partition}
                found[part.partition] += [record.offset for record in part]
    assert found == {index: list(range(10)) for index in range(PARTITIONS)}


async def test_a_poll_may_be_told_how_many(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 20)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, None)])
        assert numbers(records(await consumer.poll(10.0, max_records=3))) == [0, 1, 2]
        assert numbers(records(await consumer.poll(10.0, max_records=1))) == [3]
        assert consumer.position(topic, 0) == 4


async def test_iteration_keeps_the_position_at_the_record_in_hand(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 20)
    found = []
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, None)])
        async for record in consumer:
            found.append(int(record.value))
            assert consumer.position(topic, 0) == record.offset + 1
            if len(found) == 7:
                break
        assert numbers(await read(consumer, 13)) == list(range(7, 20))
    assert found == list(range(7))


async def test_pausing(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 30, partition=None)
    one = TopicPartition(topic, 1)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        await eventually(lambda: _poll_until_assigned(consumer))
        consumer.seek(topic, 1, 0)
        consumer.pause([one])
        assert list(consumer.paused) == [one]
        found = await read_for(consumer, 0.7)
        assert 1 not in {record.partition for record in found}
        consumer.resume([one])
        assert list(consumer.paused) == []
        again = await read(consumer, 10)
        assert [record.offset for record in again if record.partition == 1] == list(range(10))


async def _poll_until_assigned(consumer: Any) -> bool:
    await consumer.poll(0.1)
    return len(consumer.assignment) == PARTITIONS


async def read_for(consumer: Any, seconds: float) -> list[Any]:
    found: list[Any] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        found += records(await consumer.poll(0.1))
    return found


async def test_seeking_by_time(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    async with sdk.consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0, 0)])
        await consumer.seek_to_time(topic, 0, THEN + 6 * HOUR - 1)
        assert numbers(await read(consumer, 4)) == [6, 7, 8, 9]
        await consumer.seek_to_time(topic, 0, THEN + 99 * HOUR)  # after everything: the end
        assert await consumer.poll(0.3) == []
        await fill(bootstrap, topic, 1)
        assert [record.offset for record in await read(consumer, 1)] == [10]


async def test_lag(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 10)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, None)])
        await consumer.poll(10.0, max_records=4)
        assert await consumer.lag() == {TopicPartition(topic, 0): 6}


async def test_a_pattern_finds_its_topics(bootstrap: str, name: str, sdk: SdkClients) -> None:
    for suffix in ("-logs-a", "-logs-b", "-other"):
        await create_topic(bootstrap, name + suffix)
        await fill(bootstrap, name + suffix, 3)
    async with sdk.consumer(bootstrap, group=name, offset_reset="earliest") as consumer:
        consumer.subscribe(re.compile(re.escape(name) + "-logs-.*"))
        found = await read(consumer, 6)
        assert {record.topic for record in found} == {f"{name}-logs-a", f"{name}-logs-b"}


async def test_commits_with_metadata_and_in_the_background(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with sdk.consumer(
        bootstrap, group=topic, offset_reset="earliest", auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        await read(consumer, 10)
        await consumer.commit({partition: OffsetAndMetadata(4, "half way")})
        assert (await consumer.committed([partition]))[partition][:2] == (4, "half way")
        await sdk.result(consumer.commit_nowait({partition: OffsetAndMetadata(6)}))
        assert (await consumer.committed([partition]))[partition].offset == 6


async def test_the_last_of_many_commits_counts(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    partition = TopicPartition(topic, 0)
    async with sdk.consumer(bootstrap, group=topic, auto_commit=False) as consumer:
        consumer.subscribe([topic])
        await eventually(lambda: _poll_until_assigned(consumer))
        commits = [
            consumer.commit_nowait({partition: OffsetAndMetadata(number, f"to {number}")})
            for number in range(1, 20)
        ]
        await asyncio.gather(*map(sdk.result, commits))
        found = (await consumer.committed([partition]))[partition]
        assert found == OffsetAndMetadata(19, "to 19", -1)


async def test_offsets_are_committed_in_the_background(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with sdk.consumer(
        bootstrap, group=topic, offset_reset="earliest", auto_commit_interval_ms=100
    ) as consumer:
        consumer.subscribe([topic])
        await read(consumer, 10)

        async def is_committed() -> bool:
            await consumer.poll(0.05)
            found = (await consumer.committed([partition])).get(partition)
            return found is not None and found.offset == 10

        await eventually(is_committed)


async def test_wrong_options_are_told(bootstrap: str, sdk: SdkClients) -> None:
    for options in (
        {"offset_reset": "sometimes"},
        {"isolation_level": "read_all"},
        {"assignors": ("whim",), "group": "g"},
    ):
        with pytest.raises(ConfigError):
            sdk.consumer(bootstrap, **options)
