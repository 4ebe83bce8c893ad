"""Share groups as members and administrators see them."""

from typing import Any

import pytest

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from qbus.wire.messages.delete_groups import DeleteGroupsRequest
from qbus.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from qbus.wire.messages.queue_offsets import (
    PartitionRequest,
    PartitionResponse,
    QueueOffsetsRequest,
    TopicRequest,
)
from qbus.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from qbus.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .share_plane import SharePlane


async def beat(share: SharePlane, epoch: int, **fields: Any) -> Any:
    given: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": epoch}
    request = ShareGroupHeartbeatRequest(**(given | fields))
    return await share.plane.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)


async def join(share: SharePlane, **fields: Any) -> Any:
    return await beat(share, 0, **{"subscribed_topic_names": ["t"]} | fields)


async def refusal(outcome: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await outcome
    return refused.value.code


# Members


async def test_a_member_joins_and_stays_and_leaves(share: SharePlane) -> None:
    joined = await join(share, rack_id="r1")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5000
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (share.id_of("t"), [0])
    assert (await beat(share, 1)).assignment is None
    assert (await beat(share, -1)).member_epoch == -1
    assert await refusal(beat(share, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_heartbeats_as_often_as_the_group_says(share: SharePlane) -> None:
    share.configs["g"] = {"share.heartbeat.interval.ms": "7000"}
    assert (await join(share)).heartbeat_interval_ms == 7000


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": " "},
        {"member_id": ""},
        {"member_epoch": -2},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
    ids=repr,
)
async def test_what_no_member_says(share: SharePlane, fields: dict[str, Any]) -> None:
    assert await refusal(join(share, **fields)) is ErrorCode.INVALID_REQUEST


async def describe(share: SharePlane, *groups: str, version: int = 1) -> list[DescribedGroup]:
    request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
    response = await share.plane.call(ApiKey.SHARE_GROUP_DESCRIBE, version, request)
    found: list[DescribedGroup] = response.groups
    return found


async def test_a_group_is_described(share: SharePlane) -> None:
    await join(share, rack_id="r1")
    known, unknown = await describe(share, "g", "other")
    assert (known.error_code, known.group_state, known.assignor_name) == (0, "Stable", "simple")
    assert known.group_epoch == known.assignment_epoch == 1
    assert known.authorized_operations > 0
    (member,) = known.members
    assert (member.member_id, member.rack_id, member.client_id) == ("m", "r1", "test")
    assert member.subscribed_topic_names == ["t"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", [0])
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_an_empty_group_is_described(share: SharePlane) -> None:
    await join(share)
    await beat(share, -1)
    (group,) = await describe(share, "g")
    assert (group.group_state, group.members) == ("Empty", [])


# Offsets


async def offsets(
    share: SharePlane, *topics: str, group: str = "g", version: int = 1
) -> DescribeShareGroupOffsetsResponseGroup:
    """Describe those of some topics, or of all."""
    wanted = DescribeShareGroupOffsetsRequestGroup(
        group_id=group,
        topics=[
            DescribeShareGroupOffsetsRequestTopic(topic_name=one, partitions=[0]) for one in topics
        ]
        or None,
    )
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    response = await share.plane.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request)
    (found,) = response.groups
    described: DescribeShareGroupOffsetsResponseGroup = found
    return described


@pytest.mark.parametrize(("version", "lag"), [(0, -1), (1, 8)])
async def test_offsets_are_described(share: SharePlane, version: int, lag: int) -> None:
    await join(share)
    share.fill("t", 20)
    share.queues.of("t").start = 17
    for topics in ((), ("t",)):
        found = await offsets(share, *topics, version=version)
        ((one,),) = [topic.partitions for topic in found.topics]
        assert (one.error_code, one.start_offset, one.lag) == (0, 17, lag)
        assert found.topics[0].topic_id == share.id_of("t")


async def test_offsets_where_the_group_did_nothing(share: SharePlane) -> None:
    await join(share)
    assert (await offsets(share)).topics == []
    (topic,) = (await offsets(share, "t")).topics
    assert (topic.partitions[0].start_offset, topic.partitions[0].error_code) == (-1, 0)


async def test_offsets_in_a_topic_that_is_not_there(share: SharePlane) -> None:
    await join(share)
    (topic,) = (await offsets(share, "nowhere")).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_a_group_that_is_not_there(share: SharePlane) -> None:
    assert (await offsets(share)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def alter(share: SharePlane, start: int, topic: str = "t") -> Any:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start)
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[wanted])
    return await share.plane.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)


async def test_a_group_without_members_may_begin_elsewhere(share: SharePlane) -> None:
    await join(share)
    assert await refusal(alter(share, 5)) is ErrorCode.NON_EMPTY_GROUP
    await beat(share, -1)
    (topic,) = (await alter(share, 5)).responses
    assert (topic.topic_id, topic.partitions[0].error_code) == (share.id_of("t"), 0)
    assert share.queues.of("t").start == 5


async def test_a_group_may_have_offsets_before_its_first_member(share: SharePlane) -> None:
    (topic,) = (await alter(share, 5)).responses
    assert topic.partitions[0].error_code == 0
    (group,) = await describe(share, "g")
    assert (group.error_code, group.group_state) == (0, "Empty")
    assert share.queues.of("t").start == 5


async def test_not_in_a_topic_that_is_not_there(share: SharePlane) -> None:
    await join(share)
    await beat(share, -1)
    (topic,) = (await alter(share, 5, "nowhere")).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def delete_offsets(share: SharePlane, *topics: str) -> Any:
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=one) for one in topics]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=wanted)
    return await share.plane.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request)


async def test_a_group_without_members_may_be_new_to_a_topic_again(share: SharePlane) -> None:
    await join(share)
    share.queues.of("t").start = 5
    assert await refusal(delete_offsets(share, "t")) is ErrorCode.NON_EMPTY_GROUP
    await beat(share, -1)
    done, unknown = (await delete_offsets(share, "t", "nowhere")).responses
    assert (done.topic_name, done.error_code) == ("t", 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert share.queues.queues == {}


async def test_a_group_is_deleted_with_what_it_did(share: SharePlane) -> None:
    async def delete() -> int:
        request = DeleteGroupsRequest(groups_names=["g"])
        response = await share.plane.call(ApiKey.DELETE_GROUPS, 2, request)
        code: int = response.results[0].error_code
        return code

    await join(share)
    share.queues.of("t").start = 5
    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(share, -1)
    assert await delete() == 0
    assert share.queues.queues == {}
    assert (await describe(share, "g"))[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


# Between brokers


async def ask(share: SharePlane, action: int, *topics: str, start: int = -1) -> Any:
    wanted = [
        TopicRequest(name=one, partitions=[PartitionRequest(partition_index=0, start_offset=start)])
        for one in topics
    ]
    request = QueueOffsetsRequest(action=action, group_id="g", topics=wanted or None)
    return await share.plane.call(ApiKey.QUEUE_OFFSETS, 0, request)


async def one(share: SharePlane, action: int, topic: str = "t", start: int = -1) -> Any:
    response = await ask(share, action, topic, start=start)
    answer: PartitionResponse = response.topics[0].partitions[0]
    return answer


async def test_a_leader_describes(share: SharePlane) -> None:
    nothing = await one(share, 0)
    assert (nothing.error_code, nothing.start_offset, nothing.length) == (0, -1, 0)
    assert (await ask(share, 0)).topics == []
    share.fill("t", 20)
    share.queues.of("t").start = 3
    found = await one(share, 0)
    assert (found.start_offset, found.length, found.in_flight, found.delayed) == (3, 5, 2, 1)
    assert (found.oldest_ms, found.taken, found.acknowledged) == (1000, 9, 7)
    assert (await ask(share, 0)).topics[0].partitions == [found]


async def test_hidden_batches_behind_the_last_record_are_not_told_of(share: SharePlane) -> None:
    share.fill("t", 20)
    share.queues.of("t").start = 22
    assert (await one(share, 0)).start_offset == 20


async def test_a_leader_sets_the_start_and_forgets(share: SharePlane) -> None:
    assert (await one(share, 1, start=8)).error_code == 0
    assert share.queues.of("t").start == 8
    assert (await ask(share, 2)).topics[0].partitions[0].error_code == 0
    assert share.queues.queues == {}


async def test_who_does_not_lead_says_so(share: SharePlane) -> None:
    await share.plane.metadata.put(share.plane.metadata.new_topic("u", leader=2))
    assert (await one(share, 0, "u")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_action_that_there_is_not(share: SharePlane) -> None:
    assert await refusal(ask(share, 3, "t")) is ErrorCode.INVALID_REQUEST
