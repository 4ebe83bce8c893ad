"""ConsumerGroupHeartbeat and ConsumerGroupDescribe at every version, and what tools see beside."""

from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.consumer_protocol import Subscription, encode_subscription
from qbus.errors import ApiError, ErrorCode, WireError
from qbus.security.acls import AclIndex
from qbus.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from qbus.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from qbus.wire.messages.delete_groups import DeleteGroupsRequest
from qbus.wire.messages.describe_groups import DescribeGroupsRequest
from qbus.wire.messages.join_group import JoinGroupRequestProtocol
from qbus.wire.messages.list_groups import ListGroupsRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from qbus.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from ...group.shell import TOPIC_ID
from .group_broker import GroupBroker, join_request, versions

VERSIONS = versions("CONSUMER_GROUP_HEARTBEAT")


@pytest.fixture
def broker() -> GroupBroker:
    broker = GroupBroker()
    broker.metadata.add("t", 3)
    return broker


def request(member_id: str = "m", epoch: int = 0, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    fields: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        fields |= {
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
    return ConsumerGroupHeartbeatRequest(**(fields | changes))


async def beat(broker: GroupBroker, version: int = 1, *args: Any, **changes: Any) -> Any:
    return await broker.ask(version, request(*args, **changes))


def partitions(assignment: Any) -> dict[bytes, list[int]]:
    return {topic.topic_id: topic.partitions for topic in assignment.topic_partitions}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_stays_and_leaves(broker: GroupBroker, version: int) -> None:
    joined = await beat(broker, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5_000
    assert partitions(joined.assignment) == {TOPIC_ID: [0, 1, 2]}
    owned = [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1, 2])]
    stays = await beat(broker, version, "m", 1, topic_partitions=owned)
    assert (stays.error_code, stays.member_epoch, stays.assignment) == (0, 1, None)
    left = await beat(broker, version, "m", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert (await beat(broker, version, "m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_broker_chooses_the_id_in_version_0_only(broker: GroupBroker) -> None:
    assert (await beat(broker, 0, "")).member_id
    with pytest.raises(ApiError, match="no id"):
        await beat(broker, 1, "")


async def test_expressions_are_understood_from_version_1_on(broker: GroupBroker) -> None:
    with pytest.raises(WireError):
        await beat(broker, 0, subscribed_topic_regex="t.*")
    joined = await beat(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert partitions(joined.assignment) == {TOPIC_ID: [0, 1, 2]}
    refused = await beat(broker, 1, "n", subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing )" in refused.error_message


async def test_no_expression_of_a_client_without_rights_is_compiled(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.consumer_group.patterns.find_matching", pytest.fail)
    broker.access = AccessControl(AclAuthorizer(AclIndex()))
    with pytest.raises(ApiError) as refused:
        await beat(broker, 1, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": " "},
        {"epoch": -3},
        {"instance_id": ""},
        {"rack_id": ""},
        {"epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": [TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]},
    ],
)
async def test_what_no_member_says_is_refused(broker: GroupBroker, wrong: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        await broker.ask(1, request("m", **wrong))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_an_assignor_that_there_is_not(broker: GroupBroker) -> None:
    refused = await beat(broker, server_assignor="magic")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "magic" in refused.error_message


async def test_a_share_group_is_none(broker: GroupBroker) -> None:
    await broker.join_share_group("g")
    with pytest.raises(ApiError) as refused:
        await beat(broker)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions("CONSUMER_GROUP_DESCRIBE"))
async def test_describes_members_what_they_have_and_what_they_are_to_have(
    broker: GroupBroker, version: int
) -> None:
    await beat(broker, 1, subscribed_topic_regex="x", instance_id="i", rack_id="r")
    await beat(broker, 1, "n", server_assignor="range")
    await broker.shell.timers.advance(1)
    asked = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (group,) = (await broker.ask(version, asked)).groups
    assert (group.error_code, group.group_state) == (0, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "range")
    assert group.authorized_operations > 0
    members = {member.member_id: member for member in group.members}
    first, second = members["m"], members["n"]
    assert (first.instance_id, first.rack_id, first.member_epoch) == ("i", "r", 1)
    assert (first.client_id, first.client_host) == ("client", "10.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "x")
    assert second.subscribed_topic_regex is None
    assert partitions(first.assignment) == {TOPIC_ID: [0, 1, 2]}
    assert partitions(first.target_assignment) == {TOPIC_ID: [0, 1]}
    assert partitions(second.assignment) == {}
    assert [topic.topic_name for topic in second.target_assignment.topic_partitions] == ["t"]
    assert first.member_type == (1 if version >= 1 else -1)


async def test_describes_classic_members_as_such(broker: GroupBroker) -> None:
    await beat(broker)
    metadata = encode_subscription(Subscription(("t",)))
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = await broker.ask(3, join_request(protocols=protocols))
    assert joined.error_code == 0
    (group,) = (await broker.ask(1, ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
    kinds = {member.member_id: member.member_type for member in group.members}
    assert kinds == {"m": 1, joined.member_id: 0}


async def test_what_is_no_group_of_this_protocol_is_not_found(broker: GroupBroker) -> None:
    await broker.member("classic")
    asked = ConsumerGroupDescribeRequest(group_ids=["classic", "none"])
    groups = (await broker.ask(1, asked)).groups
    assert [group.error_code for group in groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert all(group.error_message for group in groups)


async def test_it_is_listed_with_its_type_and_state(broker: GroupBroker) -> None:
    await beat(broker)
    await broker.member("classic")

    async def listed(**filters: list[str]) -> set[tuple[str, str, str]]:
        groups = (await broker.ask(5, ListGroupsRequest(**filters))).groups
        return {(group.group_id, group.group_type, group.group_state) for group in groups}

    ours, other = ("g", "consumer", "Stable"), ("classic", "classic", "Stable")
    assert await listed() == {ours, other}
    assert await listed(types_filter=["Consumer"]) == {ours}
    assert await listed(types_filter=["classic"]) == {other}
    assert await listed(types_filter=["share"]) == set()
    assert await listed(states_filter=["stable"]) == {ours, other}
    assert await listed(states_filter=["reconciling"]) == set()


@pytest.mark.parametrize("version", versions("DESCRIBE_GROUPS"))
async def test_describing_it_as_a_classic_one_tells_that_it_is_none(
    broker: GroupBroker, version: int
) -> None:
    await beat(broker)
    (group,) = (await broker.ask(version, DescribeGroupsRequest(groups=["g"]))).groups
    assert group.group_state == "Dead"
    if version >= 6:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group.error_message == "Group g is not a classic group."


async def test_it_is_deleted_when_it_is_empty(broker: GroupBroker) -> None:
    await beat(broker)
    delete = DeleteGroupsRequest(groups_names=["g"])
    (result,) = (await broker.ask(2, delete)).results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(broker, 1, "m", -1)
    (result,) = (await broker.ask(2, delete)).results
    assert result.error_code == 0
    assert (await broker.ask(5, ListGroupsRequest())).groups == []


def commit(epoch: int, member_id: str = "m") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])],
    )


@pytest.mark.parametrize("version", [9, 10])
async def test_members_commit_in_their_epoch(broker: GroupBroker, version: int) -> None:
    await beat(broker)

    async def error(epoch: int, member_id: str = "m") -> ErrorCode:
        (topic,) = (await broker.ask(version, commit(epoch, member_id))).topics
        return ErrorCode(topic.partitions[0].error_code)

    assert await error(1) is ErrorCode.NONE
    assert await error(2) is ErrorCode.STALE_MEMBER_EPOCH
    assert await error(1, "n") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await error(-1, "") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [9, 10])
async def test_members_read_offsets_in_their_epoch(broker: GroupBroker, version: int) -> None:
    await beat(broker)
    await broker.ask(9, commit(1))

    async def fetch(member_id: str | None, epoch: int) -> Any:
        wanted = OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=None
        )
        (group,) = (await broker.ask(version, OffsetFetchRequest(groups=[wanted]))).groups
        return group

    for member_id, epoch in ((None, -1), ("m", 1)):
        (topic,) = (await fetch(member_id, epoch)).topics
        assert topic.partitions[0].committed_offset == 5
    assert (await fetch("m", 2)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert (await fetch("n", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
