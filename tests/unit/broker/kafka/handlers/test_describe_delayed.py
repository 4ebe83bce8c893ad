"""DescribeDelayed: what partitions hold back."""

from typing import Any

from qbus.errors import ErrorCode
from qbus.records import build_batch
from qbus.wire import ApiKey
from qbus.wire.messages.describe_delayed import (
    DescribeDelayedRequest,
    PartitionRequest,
    PartitionResponse,
    TopicRequest,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_plane import DataPlane
from tests.support.logs import NOW_MS


async def send(plane: DataPlane, *delays: str) -> None:
    batch = build_batch(
        [(b"k%d" % i, b"value", [("qbus-delay", d.encode())], NOW_MS) for i, d in enumerate(delays)]
    )
    data = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name="orders", partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    response = await plane.call(ApiKey.PRODUCE, 9, request)
    assert response.responses[0].partition_responses[0].error_code == 0


async def describe(plane: DataPlane, limit: int = 0, **after: Any) -> PartitionResponse:
    wanted = PartitionRequest(partition_index=0, limit=limit, **after)
    request = DescribeDelayedRequest(topics=[TopicRequest(name="orders", partitions=[wanted])])
    response = await plane.call(ApiKey.DESCRIBE_DELAYED, 0, request)
    answer: PartitionResponse = response.topics[0].partitions[0]
    return answer


async def test_counts_and_the_next_due_time(plane: DataPlane) -> None:
    await plane.create("orders", qbus_delay_enable=True)
    answer = await describe(plane)
    assert (answer.error_code, answer.pending, answer.next_due) == (0, 0, -1)
    await send(plane, "2h", "1h", "30d")
    answer = await describe(plane)
    assert (answer.pending, answer.next_due) == (3, NOW_MS + 3_600_000)
    assert answer.records == []


async def test_records_in_the_order_in_which_they_are_due_page_by_page(plane: DataPlane) -> None:
    await plane.create("orders", qbus_delay_enable=True)
    await send(plane, "2h", "1h", "30d")
    first, second = (await describe(plane, limit=2)).records
    assert (bytes(first.key or b""), first.due) == (b"k1", NOW_MS + 3_600_000)
    assert (first.offset, first.original_offset, first.taken, first.size) == (1, 1, NOW_MS, 7)
    assert bytes(second.key or b"") == b"k0"
    rest = await describe(plane, limit=2, after_due=second.due, after_offset=second.offset)
    assert [bytes(record.key or b"") for record in rest.records] == [b"k2"]


async def test_a_record_is_read_whole_by_the_offset_that_its_producer_was_told(
    plane: DataPlane,
) -> None:
    await plane.create("orders", qbus_delay_enable=True)
    await send(plane, "2h", "1h")
    (record,) = (await describe(plane, offsets=[1, 2, -5, 1 << 62])).records
    assert (record.original_offset, bytes(record.value or b""), record.ttl) == (1, b"value", -1)
    assert [(one.key, bytes(one.value or b"")) for one in record.headers] == [("qbus-delay", b"1h")]


async def test_topics_without_delays_hold_nothing_back(plane: DataPlane) -> None:
    await plane.create("orders")
    assert (await describe(plane, limit=10)).pending == 0
    assert (await describe(plane, offsets=[0])).records == []


async def test_a_partition_that_is_not_here(plane: DataPlane) -> None:
    assert (await describe(plane)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
