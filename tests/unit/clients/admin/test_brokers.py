"""Brokers and their log directories."""

import pytest

from qbus.clients import Admin, PartialFailure, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.support.fake_broker import NODE, FakeBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("u", 1)


async def test_directories_of_the_brokers_that_answer() -> None:
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
        broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(log_dir="/data")]
        )
        with pytest.raises(PartialFailure) as caught:
            await admin.describe_log_dirs()
        assert [found.path for found in caught.value.results[NODE]] == ["/data"]
        assert list(caught.value.errors) == [9]


async def test_a_replica_on_its_way() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        moving = DescribeLogDirsPartition(
            partition_index=0, partition_size=10, offset_lag=5, is_future_key=True
        )
        broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir="/data", topics=[DescribeLogDirsTopic(name="t", partitions=[moving])]
                )
            ]
        )
        ((replica,),) = [found.replicas for found in await admin.describe_log_dirs([NODE])]
        assert (replica.size, replica.lag, replica.is_future) == (10, 5, True)


async def test_replicas_are_moved_some_of_which_cannot_be() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def answer(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
            return AlterReplicaLogDirsResponse(
                results=[
                    AlterReplicaLogDirTopicResult(
                        topic_name=topic.name,
                        partitions=[
                            AlterReplicaLogDirPartitionResult(
                                partition_index=index,
                                error_code=ErrorCode.LOG_DIR_NOT_FOUND
                                if target.path == "/nowhere"
                                else ErrorCode.NONE,
                            )
                            for index in topic.partitions
                        ],
                    )
                    for target in request.dirs
                    for topic in target.topics
                ]
            )

        broker.handlers[ApiKey.ALTER_REPLICA_LOG_DIRS] = answer
        with pytest.raises(PartialFailure, match="u-1") as caught:
            await admin.alter_replica_log_dirs(NODE, {FIRST: "/data", SECOND: "/nowhere"})
        assert list(caught.value.results) == [FIRST]
        assert caught.value.errors[SECOND].code is ErrorCode.LOG_DIR_NOT_FOUND


async def test_a_broker_that_is_not_there() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(ApiError) as caught:
            await admin.alter_replica_log_dirs(9, {FIRST: "/data"})
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
