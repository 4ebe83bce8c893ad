"""CreatePartitions (key 37): more partitions for topics (KIP-195).

``count`` is how many there shall be in all. Records stay where they are: what a key's partition was
before may differ from what it is afterwards. So the system's own topics, of which coordinators look
for what is stored under a key, do not grow: INVALID_TOPIC_EXCEPTION. Every topic is echoed in the
answer; one that comes twice is INVALID_REQUEST. Versions differ only in their encoding, but for
version 3, which knows of quotas of such changes (KIP-599).
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.names import INTERNAL_TOPICS
from qbus.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

from ...authorization import Operation
from ...authorization import topic as topic_resource
from ...controller import Growth
from ..context import RequestContext
from ..log_lines import ChangedTopic, tell_topics

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)

_FIRST_WITH_QUOTAS = 3


async def handle(
    broker: "Broker", context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Grow each topic for itself."""
    times = Counter(topic.name for topic in request.topics)
    results = {name: CreatePartitionsTopicResult(name=name) for name in times}
    growths = []
    for topic in request.topics:
        if times[topic.name] > 1:
            results[topic.name].error_code = ErrorCode.INVALID_REQUEST
            results[topic.name].error_message = "the topic's name comes twice"
        elif not context.allows(Operation.ALTER, topic_resource(topic.name)):
            results[topic.name].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name in INTERNAL_TOPICS:
            results[topic.name].error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            results[topic.name].error_message = "the topic is the system's own"
        else:
            try:
                _count(broker, context, request, topic)
                growths.append(_to_grow(topic))
            except ApiError as error:
                results[topic.name].error_code = error.code
                results[topic.name].error_message = error.message
    errors = await broker.controller.create_partitions(growths, validate_only=request.validate_only)
    grown: list[ChangedTopic] = []
    for growth, refusal in zip(growths, errors, strict=True):
        if refusal is not None:
            results[growth.topic].error_code = refusal.code
            results[growth.topic].error_message = refusal.message
            if not request.validate_only:
                context.change_partitions_back(_new_partitions(broker, growth.topic, growth.total))
        elif not request.validate_only:
            grown.append(_told(growth))
    tell_topics(_log, grown, "have more partitions now,", context.sender)
    return CreatePartitionsResponse(results=list(results.values()))


def _told(growth: Growth) -> ChangedTopic:
    topic, total = growth.topic, growth.total
    return ChangedTopic(f"{topic} has {total} partitions now,", f"{topic} ({total})")


def _count(
    broker: "Broker",
    context: RequestContext,
    request: CreatePartitionsRequest,
    topic: CreatePartitionsTopic,
) -> None:
    """Count new partitions against the quota of such changes. Raises ApiError."""
    if not request.validate_only:
        context.change_partitions(
            _new_partitions(broker, topic.name, topic.count),
            strict=context.api_version >= _FIRST_WITH_QUOTAS,
        )


def _new_partitions(broker: "Broker", name: str, total: int) -> int:
    topic = broker.metadata.topics.get(name)
    return 0 if topic is None else max(total - len(topic.partitions), 0)


def _to_grow(topic: CreatePartitionsTopic) -> Growth:
    assigned = topic.assignments
    return Growth(
        topic.name,
        topic.count,
        None if assigned is None else [item.broker_ids for item in assigned],
    )
