"""CreateTopics (key 19): topics with partitions, replicas and configuration of one's own.

-1 partitions or replicas: the broker's defaults (KIP-464). Version 5 answers with what was made
(KIP-525), 6 knows of quotas of such changes (KIP-599), 7 answers with the topic's id. A name that
comes twice is INVALID_REQUEST. The answer waits until this broker knows the topics, whatever
``timeout_ms`` says: that takes milliseconds. A few partitions can be used here by then; the logs of
hundreds are made afterwards, as Kafka makes all.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from qbus.config import TOPIC_CONFIG, TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ZERO_UUID
from qbus.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from ...authorization import CLUSTER, Operation
from ...authorization import topic as topic_resource
from ...controller import NewTopic, TopicPlan
from ..context import RequestContext
from ..log_lines import ChangedTopic, tell_topics
from .configs import check_dead_letters

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)

_FIRST_WITH_CONFIGS: Final = 5
_FIRST_WITH_QUOTAS: Final = 6


async def handle(
    broker: "Broker", context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create each topic for itself."""
    count = Counter(topic.name for topic in request.topics)
    results = {
        name: _refuse(name, ApiError(ErrorCode.INVALID_REQUEST, "the topic's name comes twice"))
        for name, times in count.items()
        if times > 1
    }
    may_create_all = context.may(Operation.CREATE, CLUSTER)
    new: list[NewTopic] = []
    for topic in request.topics:
        if topic.name not in results:
            try:
                # Asked all the same where it may create all of them, for the audit log.
                resource = CLUSTER if may_create_all else topic_resource(topic.name)
                context.authorize(Operation.CREATE, resource)
                wanted = _to_create(topic)
                check_dead_letters(context, wanted.config, {})
                if not request.validate_only and topic.name not in broker.metadata.topics:
                    context.change_partitions(
                        partitions_of(broker, wanted),
                        strict=context.api_version >= _FIRST_WITH_QUOTAS,
                    )
                new.append(wanted)
            except ApiError as error:
                results[topic.name] = _refuse(topic.name, error)
    plans = await broker.controller.create_topics(new, validate_only=request.validate_only)
    describe = _Description(broker, context)
    created: dict[str, TopicPlan] = {}
    for wanted, plan in zip(new, plans, strict=True):
        if isinstance(plan, ApiError):
            results[wanted.name] = _refuse(wanted.name, plan)
            if not request.validate_only and wanted.name not in broker.metadata.topics:
                context.change_partitions_back(partitions_of(broker, wanted))
        else:
            results[wanted.name] = describe(wanted.name, plan)
            if request.validate_only:
                results[wanted.name].topic_id = ZERO_UUID
            else:
                created[wanted.name] = plan
    tell_created(created, context)
    return CreateTopicsResponse(topics=[results[name] for name in count])


def partitions_of(broker: "Broker", topic: NewTopic) -> int:
    """How many partitions a topic is to have, for the quota of such changes."""
    if topic.assignment:
        return len(topic.assignment)
    return topic.partitions if topic.partitions > 0 else broker.config.num_partitions


def tell_created(created: Mapping[str, TopicPlan], context: RequestContext) -> None:
    """Tell the operator of new topics."""
    for name in created:
        context.changed("create topic", name)
    told = [_told(name, plan) for name, plan in created.items()]
    tell_topics(_log, told, "are created", context.sender)


def _told(name: str, plan: TopicPlan) -> ChangedTopic:
    made = f"partitions: {len(plan.assignment)}, replicas of each: {plan.replication_factor}"
    return ChangedTopic(f"{name} is created, {made},", f"{name} ({made})")


def _to_create(topic: CreatableTopic) -> NewTopic:
    assignment = {item.partition_index: item.broker_ids for item in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once"
        )
    config = {item.name: item.value for item in topic.configs}
    if len(config) < len(topic.configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, "a configuration comes more than once")
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, config)


def _refuse(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


class _Description:
    """Describes what was made, as far as the client may describe it and its version can say it."""

    def __init__(self, broker: "Broker", context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._known: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def __call__(self, name: str, plan: TopicPlan) -> CreatableTopicResult:
        result = CreatableTopicResult(name=name, topic_id=plan.topic_id, error_message=None)
        if self._context.api_version < _FIRST_WITH_CONFIGS:
            return result
        if not self._context.may(Operation.DESCRIBE_CONFIGS, topic_resource(name)):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return result
        result.num_partitions = len(plan.assignment)
        result.replication_factor = plan.replication_factor
        result.configs = self._configs(plan.config)
        return result

    def _configs(self, config: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """The configuration in force: the topics of a request often have the same."""
        own = tuple(sorted(config.items()))
        known = self._known.get(own)
        if known is None:
            known = self._known[own] = [*_describe_config(TopicConfig(self._broker.config, config))]
        return known


def _describe_config(config: TopicConfig) -> Iterable[CreatableTopicConfigs]:
    for name in TOPIC_CONFIG:
        entry = config.describe(name)
        yield CreatableTopicConfigs(
            name=name,
            value=entry.text,
            read_only=False,
            config_source=entry.source,
            is_sensitive=entry.key.sensitive,
        )
