"""Administration, by the sync and the async clients, of both servers.

Kafka's broker learns of changes a moment after its controller has answered.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio

from qbus.aio import Consumer, Producer
from qbus.clients import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ConfigKind,
    ConfigSource,
    NewTopic,
    OffsetAndMetadata,
    PartialFailure,
    TopicPartition,
)
from qbus.errors import ApiError, ErrorCode
from tests.sdk.reading import read
from tests.sdk.sdk_clients import SdkClients
from tests.sdk.servers import Server
from tests.support.waiting import eventually, until


@pytest_asyncio.fixture
async def admin(bootstrap: str, sdk: SdkClients) -> AsyncIterator[Any]:
    """An admin client, of each kind in turn."""
    async with sdk.admin(bootstrap, request_timeout_ms=10_000) as connected:
        yield connected


async def code_of(call: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await call  # type: ignore[misc]
    assert str(caught.value)
    return caught.value.code


async def put(bootstrap: str, topic: str) -> None:
    """Produce ten records to partition 0."""
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, [b"x"] * 10, partition=0)


async def has_partitions(admin: Any, topic: str, count: int) -> bool:
    return len((await admin.describe_topic(topic)).partitions) == count


async def test_the_cluster(admin: Any, server: Server) -> None:
    described = await admin.describe_cluster()
    assert described.cluster_id
    (node,) = described.nodes
    assert (node.host, node.port) == ("127.0.0.1", server.process.port)
    assert described.controller_id == node.id


async def test_the_life_of_a_topic(admin: Any, name: str) -> None:
    await admin.create_topic(name, partitions=2, validate_only=True)
    assert name not in [topic.name for topic in await admin.list_topics()]
    await admin.create_topic(name, partitions=2, replication_factor=1)
    assert await code_of(admin.create_topic(name)) is ErrorCode.TOPIC_ALREADY_EXISTS

    async def is_listed() -> bool:
        return name in [topic.name for topic in await admin.list_topics()]

    await eventually(is_listed)
    described = await admin.describe_topic(name)
    assert [(p.index, p.replicas, p.isr) for p in described.partitions] == [
        (index, (described.partitions[0].leader,), (described.partitions[0].leader,))
        for index in range(2)
    ]
    assert described.topic_id.int != 0
    await admin.create_partitions(name, 5)

    await eventually(lambda: has_partitions(admin, name, 5))
    assert await code_of(admin.create_partitions(name, 5)) is ErrorCode.INVALID_PARTITIONS
    await admin.delete_topic(name)
    assert await code_of(admin.delete_topic(name)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await until(is_listed, False)


async def test_invalid_topics_are_refused(admin: Any, name: str) -> None:
    assert await code_of(admin.create_topic("a/b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await code_of(admin.create_topic(name, partitions=0)) is ErrorCode.INVALID_PARTITIONS
    wrong = {"retention.ms": "soon"}
    assert await code_of(admin.create_topic(name, config=wrong)) is ErrorCode.INVALID_CONFIG
    assert await code_of(admin.describe_topic(name)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topic_configuration(admin: Any, topic: str) -> None:
    async def entry(key: str) -> tuple[str | None, ConfigSource]:
        entries = await admin.describe_config(ConfigKind.TOPIC, topic)
        (found,) = [entry for entry in entries if entry.name == key]
        return found.value, found.source

    default = await entry("retention.ms")
    assert default[1] is not ConfigSource.TOPIC
    await admin.alter_config(ConfigKind.TOPIC, topic, set={"retention.ms": "1234567"})
    await until(lambda: entry("retention.ms"), ("1234567", ConfigSource.TOPIC))
    await admin.alter_config(
        ConfigKind.TOPIC, topic, set={"segment.bytes": "2000000"}, unset=["retention.ms"]
    )
    await until(lambda: entry("retention.ms"), default)
    assert await entry("segment.bytes") == ("2000000", ConfigSource.TOPIC)
    wrong = admin.alter_config(ConfigKind.TOPIC, topic, set={"segment.bytes": "many"})
    assert await code_of(wrong) is ErrorCode.INVALID_CONFIG


async def test_broker_configuration(admin: Any) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    entries = await admin.describe_config(ConfigKind.BROKER, str(node.id))
    assert "num.partitions" in [entry.name for entry in entries]
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    unknown = admin.describe_config(ConfigKind.BROKER, "99")
    assert await code_of(unknown) is ErrorCode.BROKER_NOT_AVAILABLE


async def test_offsets_and_deleted_records(admin: Any, bootstrap: str, topic: str) -> None:
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


async def test_the_life_of_a_group(admin: Any, bootstrap: str, topic: str) -> None:
    group = topic
    await put(bootstrap, topic)
    async with Consumer(bootstrap, group=group, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        await read(consumer, 10)
        await consumer.commit()
        described = await admin.describe_group(group)
        assert described.state == "Stable"
        (member,) = described.members
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


async def test_log_directories(admin: Any, bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, [bytes(1000)] * 10, partition=2)
    (log_dir,) = await admin.describe_log_dirs()
    assert log_dir.is_online
    sizes = {r.partition: r.size for r in log_dir.replicas if r.topic == topic}
    assert sizes.keys() == {0, 1, 2}
    assert sizes[2] > 10_000
    assert sizes[0] == 0
    assert await code_of(admin.describe_log_dirs([99])) is ErrorCode.BROKER_NOT_AVAILABLE


async def test_topics_by_their_ids(admin: Any, name: str) -> None:
    created = await admin.create_topic(name, partitions=2)
    assert (created.partitions, created.replication_factor) == (2, 1)

    async def is_known() -> bool:
        try:
            return bool((await admin.describe_topic(created.topic_id)).name == name)
        except ApiError:
            return False

    await eventually(is_known)
    await admin.delete_topic(created.topic_id)
    again = await admin.create_topic(name)
    assert again.topic_id != created.topic_id
    gone = admin.delete_topic(created.topic_id)
    assert await code_of(gone) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_several_topics_some_of_which_cannot_be(admin: Any, name: str) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    good = NewTopic(name, assignments=[[node.id], [node.id], [node.id]])
    with pytest.raises(PartialFailure) as caught:
        await admin.create_topics([good, NewTopic("a/b"), NewTopic(f"{name}x", 0)])
    assert caught.value.results[name].partitions == 3
    assert {topic: error.code for topic, error in caught.value.errors.items()} == {
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{name}x": ErrorCode.INVALID_PARTITIONS,
    }
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_topics([name, "missing"])
    assert list(caught.value.errors) == ["missing"]


async def test_more_partitions_where_they_are_wanted(admin: Any, topic: str) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    await admin.create_partitions(topic, 5, assignments=[[node.id]] * 2, validate_only=True)
    assert len((await admin.describe_topic(topic)).partitions) == 3
    nowhere = admin.create_partitions(topic, 4, assignments=[[99]])
    assert await code_of(nowhere) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    await admin.create_partitions(topic, 4, assignments=[[node.id]])

    await eventually(lambda: has_partitions(admin, topic, 4))


async def test_lists_in_a_configuration(admin: Any, topic: str) -> None:
    async def policy() -> set[str]:
        entries = (await admin.describe_configs([(ConfigKind.TOPIC, topic)]))[
            ConfigKind.TOPIC, topic
        ]
        (found,) = [entry.value for entry in entries if entry.name == "cleanup.policy"]
        return set((found or "").split(","))

    await admin.alter_config(ConfigKind.TOPIC, topic, append={"cleanup.policy": "compact"})
    await eventually(lambda: _is(policy(), {"compact", "delete"}))
    await admin.alter_config(ConfigKind.TOPIC, topic, subtract={"cleanup.policy": "delete"})
    await eventually(lambda: _is(policy(), {"compact"}))


async def _is(found: Awaitable[object], expected: object) -> bool:
    return await found == expected


async def test_producers_of_a_partition(admin: Any, bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    await put(bootstrap, topic)
    (state,) = (await admin.describe_producers([partition]))[partition]
    assert (state.last_sequence, state.transaction_start) == (9, -1)
    assert state.last_timestamp > 1_600_000_000_000


async def test_records_are_deleted_where_they_can_be(
    admin: Any, bootstrap: str, topic: str
) -> None:
    await put(bootstrap, topic)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_records({first: 5, second: 5})
    assert caught.value.results == {first: 5}
    assert caught.value.errors[second].code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_group_goes_on_from_somewhere_else(admin: Any, bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"x", partition=0, timestamp=1000 * number)
    group, partition = topic, TopicPartition(topic, 0)
    await admin.alter_group_offsets(group, {partition: OffsetAndMetadata(3, "by hand")})
    committed = await admin.committed_offsets(group)
    assert (committed[partition].offset, committed[partition].metadata) == (3, "by hand")
    for time, offset in [(LATEST, 10), (4500, 5), (1_000_000, 10), (EARLIEST, 0)]:
        assert await admin.reset_group_offsets(group, time=time) == {partition: offset}
        assert (await admin.committed_offsets(group))[partition].offset == offset
    assert await admin.reset_group_offsets(group, [partition], time=LATEST) == {partition: 10}


async def test_members_are_removed(admin: Any, bootstrap: str, topic: str) -> None:
    group = topic
    async with Consumer(bootstrap, group=group, instance_id="one") as consumer:
        consumer.subscribe([topic])

        async def is_assigned() -> bool:
            await consumer.poll(0.05)
            return len(consumer.assignment) == 3

        await eventually(is_assigned)
        with pytest.raises(ApiError):
            await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
        await admin.remove_members(group, ["one"], reason="a test")
        assert (await admin.describe_group(group)).members == ()
        await admin.remove_members(group)
    listed = await admin.list_groups(states=["Empty"])
    assert group in [listing.group for listing in listed]
    assert {listing.state for listing in listed} == {"Empty"}
    assert group not in [g.group for g in await admin.list_groups(states=["Stable"])]


async def test_groups_some_of_which_are_not_there(admin: Any, topic: str) -> None:
    await admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 0})
    with pytest.raises(PartialFailure) as caught:
        await admin.describe_groups([topic, "missing"])
    assert caught.value.results[topic].state == "Empty"
    assert caught.value.errors["missing"].code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(PartialFailure) as caught:
        await admin.delete_groups([topic, "missing"])
    assert list(caught.value.errors) == ["missing"]


async def test_reassignments_and_elections(admin: Any, topic: str) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    partition, missing = TopicPartition(topic, 0), TopicPartition(topic, 99)
    await admin.alter_reassignments({partition: [node.id]})
    assert await admin.list_reassignments([partition]) == {}
    assert await admin.list_reassignments() == {}
    nowhere = admin.alter_reassignments({partition: [99]})
    assert await code_of(nowhere) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    still = admin.cancel_reassignments([partition])
    assert await code_of(still) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await admin.elect_leaders([partition]) == {partition: False}
    assert await admin.elect_leaders() == {}
    with pytest.raises(PartialFailure) as caught:
        await admin.elect_leaders([partition, missing])
    assert caught.value.results == {partition: False}
    assert caught.value.errors[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_group_configuration(admin: Any, name: str) -> None:
    key = "share.session.timeout.ms"
    await admin.alter_config(ConfigKind.GROUP, name, set={key: "50000"})

    async def value() -> object:
        entries = await admin.describe_config(ConfigKind.GROUP, name)
        return next(entry.value for entry in entries if entry.name == key)

    await eventually(lambda: _is(value(), "50000"))


async def test_replicas_move_between_directories(admin: Any, topic: str) -> None:
    (log_dir,) = await admin.describe_log_dirs()
    first, missing = TopicPartition(topic, 0), TopicPartition(topic, 99)
    await admin.alter_replica_log_dirs(log_dir.node_id, {first: log_dir.path})
    with pytest.raises(PartialFailure) as caught:
        await admin.alter_replica_log_dirs(
            log_dir.node_id, {first: log_dir.path, missing: "/nowhere"}
        )
    assert list(caught.value.results) == [first]
    assert caught.value.errors[missing].code is ErrorCode.LOG_DIR_NOT_FOUND
