"""DescribeProducers (key 61): the idempotent producers that partitions remember (KIP-664).

Of a transactional one also the epoch of the coordinator that ended its last transaction, and where
the open one begins; -1 each where there is none. Of one that has written nothing since it got a new
epoch, sequence and timestamp are -1.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List what is in memory."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(broker, context, topic.name, i) for i in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(
    broker: "Broker", context: RequestContext, topic: str, index: int
) -> PartitionResponse:
    try:
        context.authorize(Operation.READ, topic_resource(topic))
        partition = broker.replicas.leader_of(topic, index)
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in partition.log.producers
        ],
    )
