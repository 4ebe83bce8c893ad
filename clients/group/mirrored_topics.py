"""The mirrors of a topic, found by topic configuration."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

from ..idcs import Everywhere
from ..net.cluster import Cluster
from ..net.retry import retrying
from ..types import ConfigKind, TopicDescription

_SOURCE = "qbus.mirror.source"
_FORMER_SOURCE = "qbus.mirror.former.source"
_AT_A_TIME = 200
_TOLD = {ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""Codes after which a topic exists."""


class MirroredTopics:
    """Finds the topics that are ``wanted``; asks about each only once.

    What a topic mirrors never changes while the topic exists.
    """

    def __init__(self, cluster: Cluster, wanted: Everywhere) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._known: dict[tuple[str, UUID], bool] = {}

    async def among(self, topics: Iterable[TopicDescription]) -> tuple[str, ...]:
        """Return the names of those wanted. Raises :class:`~qbus.errors.ApiError`."""
        origins = {
            (topic.name, topic.topic_id): origin
            for topic in topics
            if (origin := self._wanted.origin(topic.name)) is not None and not topic.is_internal
        }
        self._known = {topic: self._known[topic] for topic in origins if topic in self._known}
        ours = [topic for topic, origin in origins.items() if not origin]
        self._known |= dict.fromkeys(ours, True)
        unknown = [topic for topic in origins if topic not in self._known]
        for start in range(0, len(unknown), _AT_A_TIME):
            some = unknown[start : start + _AT_A_TIME]
            sources = await self._sources([name for name, _ in some])
            self._known |= {
                topic: origins[topic] in sources[topic[0]] for topic in some if topic[0] in sources
            }
        return tuple(sorted(name for (name, _), is_one in self._known.items() if is_one))

    async def _sources(self, names: list[str]) -> Mapping[str, set[str]]:
        """Return which datacenters each topic mirrors or mirrored; deleted topics are absent.

        Without that configuration, or where it may not be described, the prefix of the name counts.
        """
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ConfigKind.TOPIC,
                    resource_name=name,
                    configuration_keys=[_SOURCE, _FORMER_SOURCE],
                )
                for name in names
            ]
        )

        async def attempt() -> DescribeConfigsResponse:
            response: DescribeConfigsResponse = await self._cluster.ask_any(
                ApiKey.DESCRIBE_CONFIGS, request
            )
            return response

        response = await retrying(self._cluster, "the topics", attempt)
        return {
            result.resource_name: {entry.value or "" for entry in result.configs}
            or {result.resource_name.partition(".")[0]}
            for result in response.results
            if result.error_code in _TOLD
        }
