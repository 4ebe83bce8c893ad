"""Rules, credentials and quotas: what the admin client asks about security."""

from collections.abc import Iterable, Mapping

from ..net.cluster import Cluster
from .types import Filter, QuotaEntity, Rule, ScramCredentialInfo, ScramUpsert


async def create_acls(cluster: Cluster, rules: Iterable[Rule]) -> None:
    """Add rules."""
    raise NotImplementedError


async def describe_acls(cluster: Cluster, found_by: Filter) -> list[Rule]:
    """Return the rules that agree with a filter."""
    raise NotImplementedError


async def delete_acls(cluster: Cluster, found_by: Iterable[Filter]) -> list[Rule]:
    """Delete the rules that agree with any of the filters; return them."""
    raise NotImplementedError


async def describe_scram(
    cluster: Cluster, users: Iterable[str] | None
) -> dict[str, list[ScramCredentialInfo]]:
    """Return the SCRAM credentials of users."""
    raise NotImplementedError


async def alter_scram(
    cluster: Cluster, upserts: Iterable[ScramUpsert], deletions: Iterable[tuple[str, str]]
) -> None:
    """Store and delete SCRAM credentials."""
    raise NotImplementedError


async def describe_quotas(
    cluster: Cluster, entity: Mapping[str, str | None] | None, *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return quotas of clients."""
    raise NotImplementedError


async def alter_quotas(
    cluster: Cluster, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
) -> None:
    """Set and remove quotas of clients."""
    raise NotImplementedError
