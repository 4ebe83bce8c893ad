"""Metadata (key 3): which brokers there are, which topics, and who leads their partitions.

Topics: null asks for all of them, no topic for none; but in version 0, no topic asks for all. From
version 12 on a topic is named by its id or by its name, in 10 and 11 by name only. Version 1 adds
the controller, 2 the cluster's id, 4 lets the client say whether topics may be created, 5 adds
offline replicas, 7 leader epochs, 8 what the client may do (11 drops it for the cluster: KIP-700),
13 an error for the whole.

A topic that is asked for by name and does not exist is created, with the broker's defaults, if both
the client and ``auto.create.topics.enable`` let it be. Unlike Kafka, which answers at once and lets
clients come back for it, the answer waits until the topic is there, which takes milliseconds.

A broker that has to doubt whether it leads (:mod:`qbus.broker.partition.leadership_lease`) closes
the connection instead of telling of the past: librdkafka asks whichever broker answered it last,
again and again, and would never hear of the leader that others have elected.
"""

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from qbus.errors import ApiError, ErrorCode
from qbus.names import is_topic_name
from qbus.wire import ZERO_UUID
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from ...authorization import CLUSTER, Operation
from ...authorization import topic as topic_resource
from ...controller import NewTopic
from ...metadata.image import Topic
from ...net.connection import CloseConnection
from ...turns import Pace, begun, next_turn
from ..context import RequestContext
from .create_topics import tell_created
from .describe_cluster import operations_on_cluster
from .topic_partitions import is_internal, view

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_NULL_FOR_ALL = 1
_FIRST_WITH_LISTENERS = 6  # LISTENER_NOT_FOUND
_FIRST_WITH_TOPIC_IDS = 12

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

# Why a topic was not created, as far as a client is told. Anything else passes for "not there yet".
_TOLD = {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR}


def handle(
    broker: "Broker", context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answer from memory; only the creation of topics takes its time.

    Raises CloseConnection where others may lead by now what is asked for.
    """
    if _is_in_doubt(broker, request):
        raise CloseConnection("others may lead by now: the store is out of reach")
    missing = [
        name
        for name in _missing(broker, request)
        if context.may(Operation.DESCRIBE, topic_resource(name))
    ]
    # Asked also of names that cannot be: like Kafka, tell that only to who may create topics.
    denied = {name: _DENIED for name in missing if not _may_create(context, name)}
    names = [
        name
        for name in missing
        if name not in denied and is_topic_name(name) and not is_internal(name)
    ]
    if names:
        return _create_and_answer(broker, context, request, names, denied)
    return begun(_answer(broker, context, request, denied))


def _is_in_doubt(broker: "Broker", request: MetadataRequest) -> bool:
    metadata = broker.metadata
    if not metadata.suspected:
        return False
    if not request.topics:
        return True
    names = {topic.name for topic in request.topics}
    ids = {topic.topic_id for topic in request.topics}
    suspected = (metadata.topics[name] for name, _ in metadata.suspected if name in metadata.topics)
    return any(topic.name in names or topic.id in ids for topic in suspected)


def _missing(broker: "Broker", request: MetadataRequest) -> list[str]:
    """The names without a topic, where topics may be created by asking for them."""
    if not (request.topics and request.allow_auto_topic_creation):
        return []
    if not broker.config.auto_create_topics_enable:
        return []
    known = broker.metadata.topics
    wanted = (topic.name for topic in request.topics if topic.topic_id == ZERO_UUID)
    return [name for name in dict.fromkeys(wanted) if name and name not in known]


def _may_create(context: RequestContext, name: str) -> bool:
    return context.may(Operation.CREATE, CLUSTER) or context.allows(
        Operation.CREATE, topic_resource(name)
    )


async def _create_and_answer(
    broker: "Broker",
    context: RequestContext,
    request: MetadataRequest,
    names: Iterable[str],
    denied: dict[str, ErrorCode],
) -> MetadataResponse:
    outcomes = await broker.controller.create_topics([NewTopic(name) for name in names])
    created = {}
    for name, outcome in zip(names, outcomes, strict=True):
        if not isinstance(outcome, ApiError):
            context.change_partitions(len(outcome.assignment), strict=False)
            created[name] = outcome
    tell_created(created, context)
    failed = {
        name: outcome.code if outcome.code in _TOLD else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, ApiError)
    }
    return await _answer(broker, context, request, failed | denied)


async def _answer(
    broker: "Broker",
    context: RequestContext,
    request: MetadataRequest,
    failed: dict[str, ErrorCode],
) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version < _FIRST_WITH_NULL_FOR_ALL):
        topics, pace = [], Pace()
        for topic in list(broker.metadata.topics.values()):
            if pace.is_over(1 + len(topic.partitions)):
                await next_turn()
            if context.may(Operation.DESCRIBE, topic_resource(topic.name)):
                topics.append(_describe(broker, context, topic))
    else:
        by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
        topics = [_find(broker, context, one, failed, by_id=by_id) for one in wanted]
    if request.include_topic_authorized_operations:
        pace = Pace()
        for one in topics:
            if pace.is_over():
                await next_turn()
            if one.error_code != _DENIED and one.name is not None:
                resource = topic_resource(one.name)
                one.topic_authorized_operations = context.authorized_operations(resource)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=live.id, host=live.host, port=live.port, rack=live.rack)
            for live in broker.metadata.nodes(context.peer.listener.name)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(context)
    return response


def _find(
    broker: "Broker",
    context: RequestContext,
    wanted: MetadataRequestTopic,
    failed: dict[str, ErrorCode],
    *,
    by_id: bool,
) -> MetadataResponseTopic:
    name = wanted.name
    if name is None or wanted.topic_id != ZERO_UUID:
        if by_id:
            return _find_by_id(broker, context, wanted)
        # An answer without a name cannot be written in these versions either.
        return _refuse(name or "", wanted.topic_id, ErrorCode.INVALID_REQUEST)
    if not context.allows(Operation.DESCRIBE, topic_resource(name)):
        return _refuse(name, ZERO_UUID, _DENIED)
    found = broker.metadata.topics.get(name)
    if found is not None:
        return _describe(broker, context, found)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_topic_name(name):
        unknown = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _refuse(name, ZERO_UUID, failed.get(name, unknown))


def _find_by_id(
    broker: "Broker", context: RequestContext, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    if wanted.name:  # Kafka's client leaves it empty when it asks by id
        return _refuse(wanted.name, wanted.topic_id, ErrorCode.INVALID_REQUEST)
    found = broker.metadata.topics_by_id.get(wanted.topic_id)
    if found is None:
        return _refuse(None, wanted.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if not context.allows(Operation.DESCRIBE, topic_resource(found.name)):
        return _refuse(None, wanted.topic_id, _DENIED)  # and no name: that would tell
    return _describe(broker, context, found)


def _refuse(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    internal = name is not None and is_internal(name)
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=internal
    )


def _describe(broker: "Broker", context: RequestContext, topic: Topic) -> MetadataResponseTopic:
    partitions, listener = [], context.peer.listener.name
    for index, partition in enumerate(topic.partitions):
        error, leader, offline = view(broker.metadata, topic, index, listener)
        if error is ErrorCode.LISTENER_NOT_FOUND and context.api_version < _FIRST_WITH_LISTENERS:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline,
            )
        )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
    )
