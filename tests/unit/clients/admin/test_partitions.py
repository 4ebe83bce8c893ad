"""Moving replicas and electing leaders."""

import pytest

from qbus.clients import Admin, PartialFailure, Reassignment, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from qbus.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from qbus.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from qbus.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.support.fake_broker import FakeBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def altered(*codes: ErrorCode) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name="t",
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=index, error_code=code, error_message=None
                    )
                    for index, code in enumerate(codes)
                ],
            )
        ],
    )


async def test_where_partitions_are_to_go() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda _: altered(
            ErrorCode.NONE, ErrorCode.NONE
        )
        await admin.alter_reassignments({FIRST: (2, 3), SECOND: None})
        await admin.cancel_reassignments([FIRST, SECOND])
        asked = [
            [(p.partition_index, p.replicas) for p in request.topics[0].partitions]
            for request in broker.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        ]
        assert asked == [[(0, [2, 3]), (1, None)], [(0, None), (1, None)]]


async def test_some_cannot_go_there() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda _: altered(
            ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
        with pytest.raises(PartialFailure, match="t-1") as caught:
            await admin.alter_reassignments({FIRST: [2], SECOND: [99]})
        assert list(caught.value.results) == [FIRST]
        assert list(caught.value.errors) == [SECOND]


async def test_a_controller_that_moved_is_asked_where_it_is_now() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        answers = [
            AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.NOT_CONTROLLER, error_message="moved"
            ),
            altered(ErrorCode.NONE),
        ]
        broker.handlers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda _: answers.pop(0)
        await admin.alter_reassignments({FIRST: [1]})
        assert len(broker.asked(ApiKey.METADATA)) == 2


async def test_what_is_on_the_move() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: (
            ListPartitionReassignmentsResponse(
                error_message=None,
                topics=[
                    OngoingTopicReassignment(
                        name="t",
                        partitions=[
                            OngoingPartitionReassignment(
                                partition_index=1,
                                replicas=[1, 2, 3],
                                adding_replicas=[3],
                                removing_replicas=[1],
                            )
                        ],
                    )
                ],
            )
        )
        expected = {SECOND: Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(1,))}
        assert await admin.list_reassignments() == expected
        assert await admin.list_reassignments([SECOND]) == expected
        everything, one = broker.asked(ApiKey.LIST_PARTITION_REASSIGNMENTS)
        assert everything.topics is None
        assert [(t.name, t.partition_indexes) for t in one.topics] == [("t", [1])]


async def test_elections() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        codes = [
            ErrorCode.NONE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ]
        broker.handlers[ApiKey.ELECT_LEADERS] = lambda _: ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic="t",
                    partition_result=[
                        PartitionResult(partition_id=index, error_code=code, error_message=None)
                        for index, code in enumerate(codes)
                    ],
                )
            ]
        )
        with pytest.raises(PartialFailure) as caught:
            await admin.elect_leaders(unclean=True)
        assert caught.value.results == {FIRST: True, SECOND: False}
        assert [error.code for error in caught.value.errors.values()] == codes[2:]
        del codes[2]
        assert await admin.elect_leaders([FIRST, SECOND]) == {FIRST: True, SECOND: False}
        unclean, preferred = broker.asked(ApiKey.ELECT_LEADERS)
        assert (unclean.election_type, unclean.topic_partitions) == (1, None)
        assert preferred.election_type == 0
        assert [(t.topic, t.partitions) for t in preferred.topic_partitions] == [("t", [0, 1])]


async def test_an_election_is_refused_as_a_whole() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        broker.handlers[ApiKey.ELECT_LEADERS] = lambda _: ElectLeadersResponse(
            error_code=codes.pop(0)
        )
        with pytest.raises(ApiError) as caught:
            await admin.elect_leaders()
        assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert codes == []


def described(index: int, *eligible: int, more: bool = False) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                name="t",
                partitions=[
                    DescribeTopicPartitionsResponsePartition(
                        partition_index=index, eligible_leader_replicas=list(eligible)
                    )
                ],
            )
        ],
        next_cursor=Cursor(topic_name="t", partition_index=index + 1) if more else None,
    )


@pytest.mark.parametrize(
    ("error_code", "code", "message"),
    [
        (29, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t: TOPIC_AUTHORIZATION_FAILED"),
        (32_000, ErrorCode.UNKNOWN_SERVER_ERROR, "error code 32000"),
    ],
)
async def test_a_topic_whose_possible_leaders_are_not_told(
    error_code: int, code: ErrorCode, message: str
) -> None:
    """Also for a reason that only later brokers know."""
    refused = DescribeTopicPartitionsResponseTopic(name="t", error_code=error_code)
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = lambda _: (
            DescribeTopicPartitionsResponse(topics=[refused])
        )
        with pytest.raises(ApiError) as caught:
            await admin.eligible_leaders(["t"])
        assert (caught.value.code, str(caught.value)) == (code, message)


async def test_who_could_lead_is_told_page_by_page() -> None:
    pages = [described(0, 3, more=True), described(1)]
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = lambda request: pages[
            request.cursor.partition_index if request.cursor else 0
        ]
        assert await admin.eligible_leaders(["t"]) == {FIRST: (3,), SECOND: ()}
        assert len(broker.asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS)) == 2
        assert await admin.eligible_leaders([]) == {}
