"""What has to hold of the two clusters: the target takes mirrors, and topics are the same ones."""

from collections.abc import Iterable
from uuid import UUID, uuid4

from qbus.errors import ApiError, ConfigError, ErrorCode

from ..admin import Admin
from ..admin.types import NewTopic
from ..errors import PartialFailure
from ..net.cluster import Cluster
from .config import LinkConfig
from .partitions import MirroredPartition
from .provenance import SOURCE

_REFUSED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST})
_NO_IDC = "this is no IDC"
_UNKNOWN = UUID(int=0)


async def takes_mirrors(target: Cluster, idc: str) -> bool:
    """Return whether the target is a Qbus, which keeps the offsets of a mirror of ``idc``.

    The target validates two topics without creating them: it must accept a mirror, and refuse the
    mirror of an impossible datacenter name. Apache Kafka refuses both, and others may accept any
    configuration. Raises :class:`~qbus.errors.ApiError` if it cannot be asked.
    """
    good, bad = (f"{idc}.{uuid4().hex}" for _ in range(2))
    topics = [
        NewTopic(good, partitions=1, config={SOURCE: idc}),
        NewTopic(bad, partitions=1, config={SOURCE: _NO_IDC}),
    ]
    try:
        await Admin.over(target).create_topics(topics, validate_only=True)
    except PartialFailure as failure:
        for error in failure.errors.values():
            if error.code not in _REFUSED:
                raise error from None
        return failure.errors.keys() == {bad}
    return False


async def check_apart(config: LinkConfig, source: Cluster, target: Cluster) -> None:
    """Raise ConfigError if source and target have the same cluster id."""
    here, there = [
        (await Admin.over(cluster).describe_cluster()).cluster_id for cluster in (source, target)
    ]
    if here == there and here:
        raise ConfigError(
            f"{config.source} at {config.source_bootstrap} and {config.target} at"
            f" {config.target_bootstrap} are one cluster, whose id is {here}"
        )


def ids_of(partitions: Iterable[MirroredPartition]) -> dict[str, UUID]:
    """Return the ids of the topics at the source, as far as they are known."""
    return {
        mirrored.source.topic: mirrored.source_id
        for mirrored in partitions
        if mirrored.source_id is not None
    }


def check_same_topic(cluster: Cluster, mirrored: MirroredPartition) -> None:
    """Raise ApiError INCONSISTENT_TOPIC_ID if the source's topic was deleted and created again.

    Brokers that fetch by topic id refuse that themselves; older ones tell the id in their metadata.
    """
    known = cluster.metadata.topics.get(mirrored.source.topic)
    if (
        known is None
        or mirrored.source_id is None
        or known.topic_id in {mirrored.source_id, _UNKNOWN}
    ):
        return
    raise ApiError(
        ErrorCode.INCONSISTENT_TOPIC_ID,
        f"{mirrored.source.topic} is another topic now: it had the id {mirrored.source_id}",
    )
