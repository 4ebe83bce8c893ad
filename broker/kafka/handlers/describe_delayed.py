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
    PartitionRequest,
    PartitionResponse,
    TopicResponse,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_NONE: Final = -1
_MOST: Final = 1000


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
        needed = Operation.READ if wanted.limit > 0 else Operation.DESCRIBE
        context.authorize(needed, topic_resource(topic))
        partition = broker.replicas.leader_of(topic, index)
        after = wanted.after_due, wanted.after_offset
        pending, next_due, records = await broker.delays.describe(
            partition, after, min(wanted.limit, _MOST)
        )
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return PartitionResponse(
        partition_index=index,
        pending=pending,
        next_due=_NONE if next_due is None else next_due,
        records=[
            DelayedRecord(
                due=record.due,
                offset=record.offset,
                original_offset=record.original_offset,
                taken=record.taken_ms,
                key=record.key,
                size=len(record.key or b"") + len(record.value or b""),
            )
            for record in records
        ],
    )
