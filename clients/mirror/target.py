"""What kind of cluster the target is, and whether it is another one than the source at all."""

from uuid import uuid4

from qbus.errors import ApiError, ConfigError, ErrorCode

from ..admin import Admin
from ..cluster import Cluster
from .config import LinkConfig

_SOURCE_KEY = "qbus.mirror.source"
_REFUSED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST})


async def takes_mirrors(target: Cluster, idc: str) -> bool:
    """Whether the target keeps the offsets of a mirror of ``idc``: whether it is a Qbus that can.

    Asked by having it check a topic that is not created. Raises :class:`~qbus.errors.ApiError`.
    """
    try:
        await Admin.over(target).create_topic(
            f"{idc}.{uuid4().hex}", partitions=1, config={_SOURCE_KEY: idc}, validate_only=True
        )
    except ApiError as error:
        if error.code in _REFUSED:
            return False
        raise
    return True


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
