"""DeleteTopics (key 20): topics with all their records.

Up to version 5 they are named by name; from 6 on each is named by name or by id (KIP-516), and is
answered with both. A topic that comes twice, or is named both ways, is INVALID_REQUEST. Where
``delete.topic.enable`` is off, TOPIC_DELETION_DISABLED, which version 3 brought; before,
INVALID_REQUEST. Version 5 knows of quotas of such changes (KIP-599).
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ZERO_UUID
from qbus.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

from ...authorization import CLUSTER, Operation
from ...authorization import topic as topic_resource
from ..context import RequestContext
from ..log_lines import ChangedTopic, tell_topics

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)

_FIRST_WITH_DISABLED = 3
_FIRST_WITH_QUOTAS = 5
_FIRST_WITH_TOPIC_IDS = 6


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete each topic for itself."""
    if context.api_version < _FIRST_WITH_TOPIC_IDS:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    else:
        wanted = request.topics
    if not broker.config.delete_topic_enable:
        return DeleteTopicsResponse(responses=_disabled(context.api_version, wanted))
    responses = []
    found: dict[str, DeletableTopicResult] = {}
    times = Counter(_name_of(broker, topic) for topic in wanted)
    may_delete_all = context.may(Operation.DELETE, CLUSTER)
    for topic in wanted:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        responses.append(result)
        try:
            name = _resolve(broker, topic)
            if may_delete_all:  # asked all the same, for the audit log
                context.authorize(Operation.DELETE, CLUSTER)
            else:
                _authorize(broker, context, topic, name, result)
            if times[name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            context.change_partitions(
                _partitions(broker, name), strict=context.api_version >= _FIRST_WITH_QUOTAS
            )
        except ApiError as error:
            _refuse(result, error)
        else:
            found[name] = result
    outcomes = await broker.controller.delete_topics(list(found))
    deleted: list[ChangedTopic] = []
    for (name, result), outcome in zip(found.items(), outcomes, strict=True):
        result.name = name
        if isinstance(outcome, ApiError):
            _refuse(result, outcome)
            context.change_partitions_back(_partitions(broker, name))
        else:
            result.topic_id = outcome.id
            context.changed("delete topic", name)
            deleted.append(ChangedTopic(f"{name} is deleted", name))
    tell_topics(_log, deleted, "are deleted", context.sender)
    return DeleteTopicsResponse(responses=responses)


def _authorize(
    broker: "Broker",
    context: RequestContext,
    wanted: DeleteTopicState,
    name: str,
    result: DeletableTopicResult,
) -> None:
    """Refuse what may not be deleted, without saying more of it than may be described.

    Raises:
        ApiError: TOPIC_AUTHORIZATION_FAILED, or what a client may know that may describe the topic:
            UNKNOWN_TOPIC_OR_PARTITION.
    """
    resource = topic_resource(name)
    may_describe = context.may(Operation.DESCRIBE, resource)
    if may_describe:
        result.name = name
        if wanted.name is not None and name not in broker.metadata.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    context.authorize(Operation.DELETE, resource)
    if wanted.name is not None and not may_describe:  # which a rule denies, though not deleting
        context.authorize(Operation.DESCRIBE, resource)


def _resolve(broker: "Broker", topic: DeleteTopicState) -> str:
    """The name of the topic to delete, be there one or not.

    Raises:
        ApiError: it is not named, or named twice, or there is none of that id.
    """
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id")
    name = _name_of(broker, topic)
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of that id")
    return name


def _partitions(broker: "Broker", name: str) -> int:
    """How many partitions the topic has, for the quota of such changes."""
    topic = broker.metadata.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def _name_of(broker: "Broker", topic: DeleteTopicState) -> str | None:
    if topic.name is not None:
        return topic.name
    known = broker.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known else None


def _refuse(result: DeletableTopicResult, error: ApiError) -> None:
    result.error_code = error.code
    result.error_message = error.message


def _disabled(version: int, wanted: list[DeleteTopicState]) -> list[DeletableTopicResult]:
    code = ErrorCode.TOPIC_DELETION_DISABLED
    if version < _FIRST_WITH_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    error = ApiError(code, "delete.topic.enable is false")
    results = [DeletableTopicResult(name=item.name, topic_id=item.topic_id) for item in wanted]
    for result in results:
        _refuse(result, error)
    return results
