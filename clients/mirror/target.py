"""What kind of cluster the target is, and whether it is another one than the source at all."""

from uuid import uuid4

from qbus.errors import ConfigError, ErrorCode

from ..admin import Admin
from ..admin.types import NewTopic
from ..errors import PartialFailure
from ..net.cluster import Cluster
from .config import LinkConfig
from .provenance import SOURCE

_REFUSED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST})
_NO_IDC = "this is no IDC"


async def takes_mirrors(target: Cluster, idc: str) -> bool:
    """Whether the target keeps the offsets of a mirror of ``idc``: whether it is a Qbus that can.

    It is asked to check two topics, without creating them: it must like a mirror, and refuse the
    mirror of what is no IDC. Apache Kafka refuses both, and others may take any configuration.
    Raises :class:`~qbus.errors.ApiError` where it cannot be asked.
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
    """Raise ConfigError where source and target are one cluster, which has its own id."""
    here, there = [
        (await Admin.over(cluster).describe_cluster()).cluster_id for cluster in (source, target)
    ]
    if here == there and here:
        raise ConfigError(
            f"{config.source} at {config.source_bootstrap} and {config.target} at"
            f" {config.target_bootstrap} are one cluster, whose id is {here}"
        )
