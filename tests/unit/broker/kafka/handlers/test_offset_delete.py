"""OffsetDelete, of which there is one version."""

from qbus.errors import ErrorCode
from qbus.wire.messages.join_group import JoinGroupRequestProtocol
from qbus.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

from ...group.shell import at
from .group_broker import GroupBroker

SUBSCRIBED_TO_T = JoinGroupRequestProtocol(
    name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
)


async def delete(broker: GroupBroker, group_id: str, **topics: list[int]) -> OffsetDeleteResponse:
    wanted = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
        )
        for name, indexes in topics.items()
    ]
    response = await broker.ask(0, OffsetDeleteRequest(group_id=group_id, topics=wanted))
    assert isinstance(response, OffsetDeleteResponse)
    return response


def errors(response: OffsetDeleteResponse) -> dict[tuple[str, int], int]:
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def broker_with_topics() -> GroupBroker:
    broker = GroupBroker()
    broker.metadata.add("t")
    broker.metadata.add("u", topic_id=b"u" * 16)
    return broker


async def test_deletes_what_exists_and_says_what_does_not() -> None:
    broker = broker_with_topics()
    await broker.commit("g", "t", 0, at(1))
    await broker.commit("g", "t", 1, at(2))

    response = await delete(broker, "g", t=[0, 2, 3], unknown=[0])

    assert errors(response) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 2): ErrorCode.NONE,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set((await broker.shell.groups.offsets("g"))["t"]) == {1}


async def test_keeps_what_members_subscribe_to() -> None:
    broker = broker_with_topics()
    await broker.member(protocols=[SUBSCRIBED_TO_T])

    response = await delete(broker, "g", t=[0], u=[0])

    assert errors(response) == {
        ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("u", 0): ErrorCode.NONE,
    }


async def test_the_group_itself_may_be_wrong() -> None:
    broker = broker_with_topics()
    await broker.member("connect", protocol_type="connect")

    assert (await delete(broker, "nobody", t=[0])).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await delete(broker, "connect", t=[0])).error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await delete(broker, "", t=[0])).error_code == ErrorCode.INVALID_GROUP_ID
