"""DescribeDelayed (key 10100, Qbus's own): the records that partitions hold back.

How many there are, and when the next is due, may know who may describe the topic; the records are
for who may read it.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError
from qbus.wire.messages.describe_delayed import (
    DelayedRecord,
    DescribeDelayedRequest,
    DescribeDelayedResponse,
    Header,
    PartitionRequest,
    PartitionResponse,
    TopicResponse,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ...delay.held import HeldRecord
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_NONE: Final = -1
_MOST: Final = 1000
_MOST_WHOLE: Final = 20


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeDelayedRequest
) -> DescribeDelayedResponse:
    """Count, and read what is asked for from the partitions' logs, in a thread."""
    return DescribeDelayedResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    await _describe(broker, context, topic.name, wanted)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _describe(
    broker: "Broker", context: RequestContext, topic: str, wanted: PartitionRequest
) -> PartitionResponse:
    index = wanted.partition_index
    try:
        needs_records = wanted.limit > 0 or wanted.offsets
        needed = Operation.READ if needs_records else Operation.DESCRIBE
        context.authorize(needed, topic_resource(topic))
        partition = broker.replicas.leader_of(topic, index)
        after = wanted.after_due, wanted.after_offset
        pending, next_due, records = await broker.delays.describe(
            partition, after, min(wanted.limit, _MOST)
        )
        whole = await broker.delays.find(partition, wanted.offsets[:_MOST_WHOLE])
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return PartitionResponse(
        partition_index=index,
        pending=pending,
        next_due=_NONE if next_due is None else next_due,
        records=[*map(_named, records), *map(_whole, whole)],
    )


def _named(record: HeldRecord) -> DelayedRecord:
    return DelayedRecord(
        due=record.due,
        offset=record.offset,
        original_offset=record.original_offset,
        taken=record.taken_ms,
        key=record.key,
        size=len(record.key or b"") + len(record.value or b""),
    )


def _whole(record: HeldRecord) -> DelayedRecord:
    answer = _named(record)
    answer.ttl = record.ttl
    answer.value = record.value
    answer.headers = [Header(key=name, value=value) for name, value in record.headers]
    return answer
