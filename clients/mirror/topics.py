"""The topics of a link: what both clusters have, and making the target's as they should be."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

from ..admin import Admin
from ..admin.types import NewTopic
from ..errors import PartialFailure, api_error
from ..net.cluster import Cluster
from ..net.retry import retrying
from ..types import ConfigKind, ConfigSource
from .config import LinkConfig
from .provenance import PATH, PREFIX
from .routes import Obstacle, Plan, Topic, TopicRoute

_log = logging.getLogger(__name__)

_AT_A_TIME = 200
_THERE_ALREADY = ErrorCode.TOPIC_ALREADY_EXISTS
_GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_CLEANUP = "cleanup.policy"
_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}


async def read_topics(
    cluster: Cluster, wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, Topic]:
    """Return the topics with ``wanted`` names and their own configuration; internal ones never.

    Raises :class:`~qbus.errors.ApiError`.
    """

    async def attempt() -> None:
        await cluster.refresh(None)

    await retrying(cluster, "the topics", attempt)
    found = cluster.metadata.topics
    names = sorted(name for name, topic in found.items() if not topic.is_internal and wanted(name))
    configs: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), _AT_A_TIME):
        configs |= await _configs(cluster, names[start : start + _AT_A_TIME])
    return {
        name: Topic(
            name,
            found[name].topic_id,
            len(found[name].partitions),
            configs[name],
            replicas=max(len(part.replicas) for part in found[name].partitions),
        )
        for name in names
        if name in configs
    }


async def _configs(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return what was set for each topic alone, without topics that are gone meanwhile."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ConfigKind.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
    )

    async def attempt() -> DescribeConfigsResponse:
        response: DescribeConfigsResponse = await cluster.ask_any(ApiKey.DESCRIBE_CONFIGS, request)
        return response

    found: dict[str, dict[str, str]] = {}
    for result in (await retrying(cluster, "the topics", attempt)).results:
        if result.error_code == _GONE:
            continue
        if result.error_code:
            raise api_error(
                result.error_code, result.error_message, of=f"topic {result.resource_name}"
            )
        found[result.resource_name] = {
            entry.name: entry.value
            for entry in result.configs
            if entry.config_source == ConfigSource.TOPIC and entry.value is not None
        }
    return found


def copied(config: LinkConfig, topic: Topic) -> dict[str, str]:
    """Return the part of a topic's configuration that its mirror gets. Pure."""
    if not config.topics_at_target.copy_config:
        return {}
    left_out = config.topics_at_target.config_exclude
    return {
        key: value
        for key, value in topic.config.items()
        if key not in left_out and not key.startswith(PREFIX)
    }


def uncompacted(config: Mapping[str, str]) -> dict[str, str]:
    """Return ``config`` for a target that does not compact, as Qbus does not. Pure.

    The target keeps everything that compaction might leave at the source, as long as that does.
    """
    policies = {policy.strip() for policy in config.get(_CLEANUP, "").split(",")}
    if "compact" not in policies:
        return dict(config)
    forever = {} if "delete" in policies else _FOREVER
    return {**config, _CLEANUP: "delete", **forever}


@dataclass(frozen=True, slots=True)
class TargetTopics:
    """Creates and configures topics at the target as planned; nothing is ever undone.

    Several processes may do the same at once.
    """

    config: LinkConfig
    admin: Admin
    brokers: Callable[[], int]
    """How many brokers the target has."""

    async def apply(
        self, plan: Plan, source: Mapping[str, Topic], target: Mapping[str, Topic]
    ) -> list[Obstacle]:
        """Create, take over, enlarge and configure topics; return what failed, as obstacles."""
        obstacles = await self._create(plan.create, source)
        for route in plan.take_over:
            path = ",".join(route.provenance.path)
            _log.warning("%s is mirrored over the path %s from now on", route.target_topic, path)
            obstacles += await self._alter(route, {PATH: path})
        for route in plan.mirror:
            existing = target[route.target_topic]
            if existing.partitions < route.partitions:
                obstacles += await self._enlarge(route)
            wanted = uncompacted(copied(self.config, source[route.topic]))
            changed = {k: v for k, v in wanted.items() if existing.config.get(k) != v}
            if changed:
                obstacles += await self._alter(route, changed)
        return obstacles

    async def _create(
        self, routes: Iterable[TopicRoute], source: Mapping[str, Topic]
    ) -> list[Obstacle]:
        by_name = {route.target_topic: route for route in routes}
        new = [self._new_topic(route, source[route.topic]) for route in by_name.values()]
        if not new:
            return []
        errors: Mapping[str, ApiError] = {}
        try:
            await self.admin.create_topics(new)
        except PartialFailure as failure:
            errors = failure.errors
        except ApiError as error:  # a single topic raises its own error
            errors = dict.fromkeys(by_name, error)
        for name in by_name.keys() - errors.keys():
            _log.info("created %s as a mirror of %s", name, by_name[name].topic)
        return [
            Obstacle(by_name[name], f"{name} cannot be created: {error}")
            for name, error in errors.items()
            if error.code != _THERE_ALREADY
        ]

    def _new_topic(self, route: TopicRoute, topic: Topic) -> NewTopic:
        replicas = self.config.topics_at_target.replication_factor
        return NewTopic(
            route.target_topic,
            route.partitions,
            replicas or min(topic.replicas, max(self.brokers(), 1)),
            config={**uncompacted(copied(self.config, topic)), **route.provenance.config()},
        )

    async def _enlarge(self, route: TopicRoute) -> list[Obstacle]:
        try:
            await self.admin.create_partitions(route.target_topic, route.partitions)
        except QbusError as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.INVALID_PARTITIONS:
                return []  # another process was first
            return [Obstacle(route, f"{route.target_topic} cannot get more partitions: {error}")]
        _log.info("enlarged %s to %s partitions", route.target_topic, route.partitions)
        return []

    async def _alter(self, route: TopicRoute, changed: Mapping[str, str]) -> list[Obstacle]:
        try:
            await self.admin.alter_config(ConfigKind.TOPIC, route.target_topic, set=changed)
        except QbusError as error:
            return [Obstacle(route, f"{route.target_topic} cannot be configured: {error}")]
        _log.info("configured %s with %s", route.target_topic, dict(changed))
        return []
