"""What the sink needs to know about topics: their partitions and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from qbus.errors import ApiError, ErrorCode

from ...admin import Admin
from ...net.cluster import Cluster
from ...net.retry import retrying
from ...types import ConfigKind, TopicDescription
from ..options import OptionError

MANIFESTS = 0
"""The staging topic's partition for manifests; the others hold staged rows."""

_ROW_PARTITIONS = 8
_DAY_MS = 86_400_000
_STAGING_CONFIG = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": str(64 * 1024 * 1024),
    "message.timestamp.type": "CreateTime",
    "retention.ms": str(3 * _DAY_MS),
}
_FOREVER = (1 << 63) - 1
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_UNKNOWABLE = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic. Times are milliseconds from now. ``holds_back``: None if unknown.

    Rows are checked before they are staged, because a manifest cannot be withdrawn.
    """

    max_batch_bytes: int = _FOREVER
    needs_keys: bool = False
    max_past_ms: int = _FOREVER
    max_future_ms: int = _FOREVER
    holds_back: bool | None = None
    max_delay_ms: int = _FOREVER

    @classmethod
    def of(cls, config: Mapping[str, str | None]) -> Self:
        """Read the limits from a topic's configuration."""
        is_create_time = config.get("message.timestamp.type") != "LogAppendTime"
        return cls(
            max_batch_bytes=int(config.get("max.message.bytes") or _FOREVER),
            needs_keys="compact" in (config.get("cleanup.policy") or ""),
            max_past_ms=_far(config, "message.timestamp.before.max.ms", is_create_time),
            max_future_ms=_far(config, "message.timestamp.after.max.ms", is_create_time),
            holds_back=config.get("qbus.delay.enable") == "true",
            max_delay_ms=int(config.get("qbus.delay.max.ms") or _FOREVER),
        )


def _far(config: Mapping[str, str | None], name: str, is_create_time: bool) -> int:
    return int(config.get(name) or _FOREVER) if is_create_time else _FOREVER


async def topic_limits(cluster: Cluster, topic: str) -> TopicLimits:
    """The limits of ``topic``; none if the cluster does not let this client read them."""
    try:
        entries = await Admin.over(cluster).describe_config(ConfigKind.TOPIC, topic)
    except ApiError as error:
        if error.code not in _UNKNOWABLE:
            raise
        return TopicLimits()
    return TopicLimits.of({entry.name: entry.value for entry in entries})


async def describe(cluster: Cluster, topic: str, partitions: int = 1) -> TopicDescription:
    """Describe ``topic``, which the broker may create; refresh metadata with fewer partitions."""

    async def attempt() -> TopicDescription:
        known = cluster.metadata.topics.get(topic)
        if known is not None and len(known.partitions) < partitions:
            cluster.metadata.forget([topic])
        await cluster.need([topic], create=True)
        return cluster.metadata.topic(topic)

    return await retrying(cluster, f"topic {topic}", attempt)


async def ensure_staging(cluster: Cluster, topic: str) -> TopicDescription:
    """Describe the staging topic; create it if it is missing.

    Raises :class:`~qbus.clients.spark.options.OptionError` for a topic with too few partitions.
    """

    async def attempt_describe() -> TopicDescription:
        await cluster.need([topic])
        return cluster.metadata.topic(topic)

    try:
        found = await retrying(cluster, f"topic {topic}", attempt_describe, final=_MISSING)
    except ApiError as error:
        if error.code not in _MISSING:
            raise
        await _create(cluster, topic)
        found = await describe(cluster, topic)
    if len(found.partitions) < 2:
        raise OptionError(
            "qbus.staging.topic",
            topic,
            "this topic has one partition and needs at least 2: add partitions, or name a topic"
            " that does not exist yet",
        )
    return found


async def _create(cluster: Cluster, topic: str) -> None:
    try:
        await Admin.over(cluster).create_topic(
            topic, partitions=_ROW_PARTITIONS + 1, config=_STAGING_CONFIG
        )
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # by another task
            raise
    cluster.metadata.forget([topic])
