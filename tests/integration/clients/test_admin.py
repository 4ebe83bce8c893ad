"""The admin client against a real broker."""

import pytest

from qbus.clients import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ConfigKind,
    ConfigSource,
    Consumer,
    Producer,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode
from tests.support.server_process import ServerProcess

from .reading import eventually, read

pytestmark = pytest.mark.integration


async def code_of(call: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await call  # type: ignore[misc]
    assert str(caught.value)
    return caught.value.code


async def test_the_cluster(admin: Admin, cluster: ServerProcess) -> None:
    described = await admin.describe_cluster()
    assert described.cluster_id
    (node,) = described.nodes
    assert (node.host, node.port) == ("127.0.0.1", cluster.port)
    assert described.controller_id == node.id


async def test_the_life_of_a_topic(admin: Admin, name: str) -> None:
    await admin.create_topic(name, partitions=2, validate_only=True)
    assert name not in [topic.name for topic in await admin.list_topics()]
    await admin.create_topic(name, partitions=2, replication_factor=1)
    assert await code_of(admin.create_topic(name)) is ErrorCode.TOPIC_ALREADY_EXISTS
    described = await admin.describe_topic(name)
    assert [(p.index, p.replicas, p.isr) for p in described.partitions] == [
        (index, (described.partitions[0].leader,), (described.partitions[0].leader,))
        for index in range(2)
    ]
    assert described.topic_id.int != 0
    await admin.create_partitions(name, 5)

    async def has_grown() -> bool:
        return len((await admin.describe_topic(name)).partitions) == 5

    await eventually(has_grown)
    assert await code_of(admin.create_partitions(name, 5)) is ErrorCode.INVALID_PARTITIONS
    assert name in [topic.name for topic in await admin.list_topics()]
    await admin.delete_topic(name)
    assert await code_of(admin.delete_topic(name)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_what_a_topic_cannot_be(admin: Admin, name: str) -> None:
    assert await code_of(admin.create_topic("a/b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await code_of(admin.create_topic(name, partitions=0)) is ErrorCode.INVALID_PARTITIONS
    wrong = {"retention.ms": "soon"}
    assert await code_of(admin.create_topic(name, config=wrong)) is ErrorCode.INVALID_CONFIG
    assert await code_of(admin.describe_topic(name)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topic_configuration(admin: Admin, topic: str) -> None:
    async def entry(key: str) -> tuple[str | None, ConfigSource]:
        entries = await admin.describe_config(ConfigKind.TOPIC, topic)
        (found,) = [entry for entry in entries if entry.name == key]
        return found.value, found.source

    default = await entry("retention.ms")
    assert default[1] is not ConfigSource.TOPIC
    await admin.alter_config(ConfigKind.TOPIC, topic, set={"retention.ms": "1234567"})
    assert await entry("retention.ms") == ("1234567", ConfigSource.TOPIC)
    await admin.alter_config(
        ConfigKind.TOPIC, topic, set={"segment.bytes": "2000000"}, unset=["retention.ms"]
    )
    assert await entry("retention.ms") == default
    assert await entry("segment.bytes") == ("2000000", ConfigSource.TOPIC)
    wrong = admin.alter_config(ConfigKind.TOPIC, topic, set={"segment.bytes": "many"})
    assert await code_of(wrong) is ErrorCode.INVALID_CONFIG


async def test_broker_configuration(admin: Admin) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    entries = await admin.describe_config(ConfigKind.BROKER, str(node.id))
    assert "num.partitions" in [entry.name for entry in entries]
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    unknown = admin.describe_config(ConfigKind.BROKER, "99")
    assert await code_of(unknown) is ErrorCode.BROKER_NOT_AVAILABLE


async def test_offsets_and_deleted_records(admin: Admin, bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number, timestamp in enumerate([1000, 3000, 2000]):
            await producer.send(topic, b"%d" % number, partition=0, timestamp=timestamp)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert (await admin.list_offsets({first: EARLIEST, second: LATEST}))[first].offset == 0
    assert (await admin.list_offsets({first: LATEST}))[first].offset == 3
    assert (await admin.list_offsets({first: MAX_TIMESTAMP}))[first] == (1, 3000)
    assert (await admin.list_offsets({first: 1001}))[first] == (1, 3000)
    assert await admin.delete_records({first: 2}) == {first: 2}
    assert (await admin.list_offsets({first: EARLIEST}))[first].offset == 2
    assert await admin.delete_records({first: LATEST}) == {first: 3}
    beyond = admin.delete_records({first: 100})
    assert await code_of(beyond) is ErrorCode.OFFSET_OUT_OF_RANGE
    missing = admin.list_offsets({TopicPartition(topic, 99): LATEST})
    assert await code_of(missing) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_life_of_a_group(admin: Admin, bootstrap: str, topic: str) -> None:
    group = topic
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, [b"x"] * 10, partition=0)
    async with Consumer(bootstrap, group=group, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        await read(consumer, 10)
        await consumer.commit()
        (member,) = (await admin.describe_group(group)).members
        assert [partition.partition for partition in member.assignment] == [0, 1, 2]
        assert group in [listing.group for listing in await admin.list_groups()]
        busy = admin.delete_group(group)
        assert await code_of(busy) is ErrorCode.NON_EMPTY_GROUP
    offsets = {offset.partition: offset for offset in await admin.group_offsets(group)}
    assert (offsets[0].committed_offset, offsets[0].end_offset, offsets[0].lag) == (10, 10, 0)
    await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 4})
    assert (await admin.group_offsets(group))[0].lag == 6
    await admin.delete_group_offsets(group, [TopicPartition(topic, 0)])
    assert 0 not in [offset.partition for offset in await admin.group_offsets(group)]
    await admin.delete_group(group)
    assert await code_of(admin.describe_group(group)) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_log_directories(admin: Admin, bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, [bytes(1000)] * 10, partition=2)
    (log_dir,) = await admin.describe_log_dirs()
    assert log_dir.is_online
    sizes = {r.partition: r.size for r in log_dir.replicas if r.topic == topic}
    assert sizes.keys() == {0, 1, 2}
    assert sizes[2] > 10_000
    assert sizes[0] == 0
    assert await code_of(admin.describe_log_dirs([99])) is ErrorCode.BROKER_NOT_AVAILABLE
