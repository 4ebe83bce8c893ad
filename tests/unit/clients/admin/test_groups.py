"""Groups, their members and their offsets, when brokers answer for some of them only."""

from collections.abc import Callable

import pytest

from qbus.clients import Admin, PartialFailure, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from qbus.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from qbus.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from qbus.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.fake_broker import NODE, FakeBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_groups_of_the_brokers_that_answer() -> None:
    async with (
        FakeBroker() as broker,
        Admin(broker.bootstrap, request_timeout_ms=1000) as admin,
    ):
        honest = broker.metadata

        def with_a_dead_one(request: MetadataRequest) -> MetadataResponse:
            response = honest(request)
            response.brokers.append(MetadataResponseBroker(node_id=9, host="127.0.0.1", port=1))
            return response

        broker.handlers[ApiKey.METADATA] = with_a_dead_one
        broker.handlers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(
            groups=[ListedGroup(group_id="g", group_state="Empty", group_type="classic")]
        )
        with pytest.raises(PartialFailure) as caught:
            await admin.list_groups()
        (listing,) = caught.value.results[NODE]
        assert (listing.group, listing.state, listing.type) == ("g", "Empty", "classic")
        assert caught.value.errors[9].retriable


async def test_groups_in_some_states() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def answer(request: ListGroupsRequest) -> ListGroupsResponse:
            assert (request.states_filter, request.types_filter) == (["Stable"], ["consumer"])
            return ListGroupsResponse()

        broker.handlers[ApiKey.LIST_GROUPS] = answer
        assert await admin.list_groups(states=["Stable"], types=["consumer"]) == []


def with_members(broker: FakeBroker, *members: DescribedGroupMember) -> None:
    def answer(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        (group,) = request.groups
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group, protocol_type="connect", members=list(members))]
        )

    broker.handlers[ApiKey.DESCRIBE_GROUPS] = answer


DYNAMIC = DescribedGroupMember(member_id="dynamic-1")
STATIC = DescribedGroupMember(member_id="static-1", group_instance_id="instance")


def leaving(broker: FakeBroker, code: ErrorCode = ErrorCode.NONE) -> None:
    def answer(request: LeaveGroupRequest) -> LeaveGroupResponse:
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=code if member.member_id == "dynamic-1" else ErrorCode.NONE,
                )
                for member in request.members
            ]
        )

    broker.handlers[ApiKey.LEAVE_GROUP] = answer


def removed(broker: FakeBroker) -> list[tuple[str, str | None]]:
    (request,) = broker.asked(ApiKey.LEAVE_GROUP)
    return [(member.member_id, member.group_instance_id) for member in request.members]


async def test_all_members_are_removed() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with_members(broker, DYNAMIC, STATIC)
        leaving(broker)
        await admin.remove_members("g")
        assert removed(broker) == [("dynamic-1", None), ("", "instance")]


async def test_chosen_members_are_removed_some_of_which_are_gone() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with_members(broker, DYNAMIC, STATIC)
        leaving(broker, ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(PartialFailure, match="member dynamic-1") as caught:
            await admin.remove_members("g", ["instance", "dynamic-1"])
        assert removed(broker) == [("", "instance"), ("dynamic-1", None)]
        assert list(caught.value.results) == ["instance"]


async def test_nobody_is_removed_from_an_empty_group() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with_members(broker)
        await admin.remove_members("g")
        assert broker.asked(ApiKey.LEAVE_GROUP) == []


async def test_a_broker_that_describes_another_group() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="other")]
        )
        with pytest.raises(ApiError, match="did not answer for group g"):
            await admin.describe_group("g")


def committing(codes: dict[int, list[ErrorCode]]) -> Callable[[object], object]:
    def answer(request: OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=asked.partition_index,
                            error_code=codes[asked.partition_index].pop(0),
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer  # type: ignore[return-value]


async def test_only_offsets_that_were_not_committed_are_committed_again() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.OFFSET_COMMIT] = committing(
            {0: [ErrorCode.NONE], 1: [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]}
        )
        await admin.alter_group_offsets("g", {FIRST: 5, SECOND: 6})
        asked = [
            [(p.partition_index, p.committed_offset) for p in request.topics[0].partitions]
            for request in broker.asked(ApiKey.OFFSET_COMMIT)
        ]
        assert asked == [[(0, 5), (1, 6)], [(1, 6)]]
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2


async def test_some_offsets_are_refused() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.OFFSET_COMMIT] = committing(
            {0: [ErrorCode.NONE], 1: [ErrorCode.UNKNOWN_MEMBER_ID]}
        )
        with pytest.raises(PartialFailure, match="t-1") as caught:
            await admin.alter_group_offsets("g", {FIRST: 5, SECOND: 6})
        assert list(caught.value.results) == [FIRST]


async def test_nothing_to_commit_asks_nobody() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        await admin.alter_group_offsets("g", {})
        assert broker.requests == []


def committed(*topics: str) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=3, metadata=""
                            )
                        ],
                    )
                    for topic in topics
                ],
            )
        ]
    )


@pytest.mark.parametrize("others", [[], ["t"]])
async def test_offsets_of_a_topic_that_was_deleted_have_no_lag(others: list[str]) -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.OFFSET_FETCH] = lambda _: committed("gone", *others)
        offsets = {offset.topic: offset for offset in await admin.group_offsets("g")}
        assert offsets.keys() == {"gone", *others}
        gone = offsets["gone"]
        assert (gone.committed_offset, gone.start_offset, gone.end_offset) == (3, -1, -1)
        assert gone.lag == 0


async def test_offsets_when_nobody_leads_anything() -> None:
    async with (
        FakeBroker() as broker,
        Admin(broker.bootstrap, request_timeout_ms=200) as admin,
    ):
        broker.handlers[ApiKey.OFFSET_FETCH] = lambda _: committed("t")
        broker.leaders["t", 0] = -1
        with pytest.raises(ApiError) as caught:
            await admin.group_offsets("g")
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_group_goes_on_at_the_end_when_nothing_is_as_late_as_asked() -> None:
    async with FakeBroker({"t": 2}) as broker, Admin(broker.bootstrap) as admin:

        def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=asked.partition_index,
                                offset={(0, 5000): 7, (1, 5000): -1, (1, -1): 9}[
                                    asked.partition_index, asked.timestamp
                                ],
                            )
                            for asked in request.topics[0].partitions
                        ],
                    )
                ]
            )

        broker.handlers[ApiKey.LIST_OFFSETS] = answer
        assert await admin.reset_group_offsets("g", [FIRST, SECOND], time=5000) == {
            FIRST: 7,
            SECOND: 9,
        }
        assert broker.committed == {("g", "t", 0): 7, ("g", "t", 1): 9}
