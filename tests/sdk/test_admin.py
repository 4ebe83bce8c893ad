"""Administration, by the sync and the async clients, of both servers."""

import pytest

from qbus.aio import Consumer, Producer
from qbus.clients import EARLIEST, LATEST, ConfigKind, TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.sdk.reading import eventually, read
from tests.sdk.sdk_clients import SdkClients


async def test_topics(bootstrap: str, name: str, sdk: SdkClients) -> None:
    async with sdk.admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=2)

        async def is_known() -> bool:
            return name in {topic.name for topic in await admin.list_topics()}

        await eventually(is_known)
        assert len((await admin.describe_topic(name)).partitions) == 2
        with pytest.raises(ApiError) as caught:
            await admin.create_topic(name)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.create_partitions(name, 4)

        async def has_grown() -> bool:
            return len((await admin.describe_topic(name)).partitions) == 4

        await eventually(has_grown)
        await admin.delete_topic(name)

        async def is_gone() -> bool:
            return name not in {topic.name for topic in await admin.list_topics()}

        await eventually(is_gone)


async def test_what_does_not_exist(bootstrap: str, name: str, sdk: SdkClients) -> None:
    async with sdk.admin(bootstrap, request_timeout_ms=1_000) as admin:
        for asked in (admin.describe_topic, admin.delete_topic):
            with pytest.raises(ApiError) as caught:
                await asked(name)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ApiError) as caught:
            await admin.describe_group(name)
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_configuration(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async def retention() -> str:
        entries = await admin.describe_config(ConfigKind.TOPIC, topic)
        return next(str(entry.value) for entry in entries if entry.name == "retention.ms")

    async with sdk.admin(bootstrap) as admin:
        before = await retention()
        await admin.alter_config(ConfigKind.TOPIC, topic, set={"retention.ms": "1234567"})

        async def is_set() -> bool:
            return await retention() == "1234567"

        await eventually(is_set)
        await admin.alter_config(ConfigKind.TOPIC, topic, unset=["retention.ms"])

        async def is_as_before() -> bool:
            return await retention() == before

        await eventually(is_as_before)
        with pytest.raises(ApiError):
            await admin.alter_config(ConfigKind.TOPIC, topic, set={"retention.ms": "soon"})


async def test_groups_and_their_offsets(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer:
        for _ in range(5):
            await producer.send(topic, b"v", partition=0)
    async with sdk.admin(bootstrap) as admin:
        async with Consumer(bootstrap, group=topic, offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            await read(consumer, 5)
            await consumer.commit()
            described = await admin.describe_group(topic)
            assert described.state == "Stable"
            assert [len(member.assignment) for member in described.members] == [3]
        assert topic in {listed.group for listed in await admin.list_groups()}
        (found,) = [one for one in await admin.group_offsets(topic) if one.partition == 0]
        assert (found.committed_offset, found.end_offset, found.lag) == (5, 5, 0)
        await admin.alter_group_offsets(topic, {partition: 2})
        (found,) = [one for one in await admin.group_offsets(topic) if one.partition == 0]
        assert (found.committed_offset, found.lag) == (2, 3)
        assert await admin.reset_group_offsets(topic, [partition], time=LATEST) == {partition: 5}
        await admin.delete_group(topic)
        assert topic not in {listed.group for listed in await admin.list_groups()}


async def test_records_and_the_cluster(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer:
        for _ in range(5):
            await producer.send(topic, b"v", partition=0)
    async with sdk.admin(bootstrap) as admin:
        assert (await admin.list_offsets({partition: LATEST}))[partition].offset == 5
        await admin.delete_records({partition: 3})
        assert (await admin.list_offsets({partition: EARLIEST}))[partition].offset == 3
        cluster = await admin.describe_cluster()
        assert cluster.controller_id in {node.id for node in cluster.nodes}
        directories = await admin.describe_log_dirs()
        assert any(replica.topic == topic for one in directories for replica in one.replicas)
