"""DescribeProducers: the idempotent producers that a partition remembers."""

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from tests.support.data_plane import DataPlane
from tests.support.logs import NOW_MS, batch, transactional


async def describe(plane: DataPlane, topic: str = "orders", index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    response = await plane.call(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    answer: PartitionResponse = response.topics[0].partitions[0]
    return answer


async def test_producers_with_their_last_sequence(plane: DataPlane) -> None:
    partition = await plane.create("orders")
    partition.append(batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0), 1)
    partition.append(batch(b"c"), 1)
    answer = await describe(plane)
    assert answer.error_code == 0
    (producer,) = answer.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 3)
    assert (producer.last_sequence, producer.last_timestamp) == (1, NOW_MS)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


async def test_unknown_partitions(plane: DataPlane) -> None:
    answer = await describe(plane, "none")
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.active_producers == []


async def test_transactions_with_their_coordinator_and_their_start(plane: DataPlane) -> None:
    partition = await plane.create("orders", qbus_durability="memory")
    partition.end_transaction(7, 4, 12, committed=True)
    asked = partition.begin_verification(7, 4, 0)
    partition.append(transactional(b"a", epoch=4), 1, asked)
    (producer,) = (await describe(plane)).active_producers
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (12, 1)
    partition.end_transaction(7, 5, 13, committed=False, version=2)
    (producer,) = (await describe(plane)).active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp) == (5, -1, -1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (13, -1)
