"""DescribeConfigs (key 32): the configuration in force of topics, brokers and share groups.

Every key is told with its value and who set it (KIP-226); on request with what else was stated for
it, the first in force, and from version 3 on with its meaning (KIP-569). The broker ``""`` stands
for all of them: told is what is set dynamically for all. Key names select; null or none is all.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.config import BrokerConfig, ConfigEntry, ShareGroupConfig, Stated, TopicConfig
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import ALL_BROKERS
from qbus.names import check_topic_name
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from ...authorization import CLUSTER, Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ..context import RequestContext
from .configs import ResourceType, broker_name, resource_type

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each resource for itself."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            entries = _entries(broker, context, resource)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            result.configs = [_result(entry, request) for entry in entries]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(
    broker: "Broker", context: RequestContext, resource: DescribeConfigsResource
) -> list[ConfigEntry]:
    kind = resource_type(resource.resource_type)
    if kind is ResourceType.TOPIC:
        context.authorize(Operation.DESCRIBE_CONFIGS, topic_resource(resource.resource_name))
        return _selected(resource, _described(_topic_config(broker, resource.resource_name)))
    if kind is ResourceType.GROUP:
        context.authorize(Operation.DESCRIBE_CONFIGS, group_resource(resource.resource_name))
        group = broker.metadata.group_config(resource.resource_name)
        return _selected(resource, _described(group))
    context.authorize(Operation.DESCRIBE_CONFIGS, CLUSTER)
    if broker_name(broker, resource.resource_name) == ALL_BROKERS:
        return _selected(resource, broker.config.describe_for_all())
    return _selected(resource, _described(broker.config))


def _described(config: BrokerConfig | TopicConfig | ShareGroupConfig) -> Iterable[ConfigEntry]:
    return (config.describe(name) for name in config.values)


def _selected(
    resource: DescribeConfigsResource, entries: Iterable[ConfigEntry]
) -> list[ConfigEntry]:
    names = set(resource.configuration_keys or ())
    return [entry for entry in entries if not names or entry.key.name in names]


def _topic_config(broker: "Broker", name: str) -> TopicConfig:
    check_topic_name(name)
    topic = broker.metadata.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} does not exist")
    return broker.metadata.topic_config(topic)


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    key = entry.key
    result = DescribeConfigsResourceResult(
        name=key.name,
        value=entry.text,
        read_only=key.static,
        config_source=entry.source,
        is_sensitive=key.sensitive,
        config_type=key.type,
        documentation=None,
    )
    if request.include_synonyms:
        result.synonyms = [_synonym(stated) for stated in entry.synonyms]
    if request.include_documentation:
        result.documentation = f"{key.doc} Allowed: {key.allowed}."
    return result


def _synonym(stated: Stated) -> DescribeConfigsSynonym:
    value = None if stated.key.sensitive else stated.key.format(stated.value)
    return DescribeConfigsSynonym(name=stated.key.name, value=value, source=stated.source)
