"""Access rules: what the admin client asks about them."""

from collections.abc import Iterable
from typing import Any

from qbus.security.acls import (
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    known,
)
from qbus.wire import ApiKey
from qbus.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from qbus.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from qbus.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from ..errors import check
from ..net.cluster import Cluster
from ..net.retry import results_or_raise, retrying
from .messages import outcomes
from .types import Filter, Rule


async def create_acls(cluster: Cluster, rules: Iterable[Rule]) -> None:
    """Add rules."""
    wanted = list(dict.fromkeys(rules))
    if not wanted:
        return
    request = CreateAclsRequest(creations=[_creation(rule) for rule in wanted])

    async def ask() -> None:
        response: CreateAclsResponse = await cluster.ask_any(
            ApiKey.CREATE_ACLS, request, is_repeatable=False
        )
        results = [(one.error_code, one.error_message) for one in response.results]
        results_or_raise(outcomes(wanted, results))

    await retrying(cluster, "the access rules", ask)


async def describe_acls(cluster: Cluster, found_by: Filter) -> list[Rule]:
    """Return the rules that agree with a filter."""
    request = DescribeAclsRequest(**_parts(found_by))

    async def ask() -> list[Rule]:
        response: DescribeAclsResponse = await cluster.ask_any(ApiKey.DESCRIBE_ACLS, request)
        check(response.error_code, response.error_message)
        return [
            Rule(
                _pattern(found.resource_type, found.resource_name, found.pattern_type),
                _entry(acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for found in response.resources
            for acl in found.acls
        ]

    return await retrying(cluster, "the access rules", ask)


async def delete_acls(cluster: Cluster, found_by: Iterable[Filter]) -> list[Rule]:
    """Delete the rules that agree with any of the filters; return them."""
    wanted = list(dict.fromkeys(found_by))
    if not wanted:
        return []
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_parts(each)) for each in wanted])

    async def ask() -> list[Rule]:
        response: DeleteAclsResponse = await cluster.ask_any(
            ApiKey.DELETE_ACLS, request, is_repeatable=False
        )
        results = [(one.error_code, one.error_message) for one in response.filter_results]
        results_or_raise(outcomes(wanted, results))
        deleted = [acl for found in response.filter_results for acl in found.matching_acls]
        results_or_raise(
            outcomes(map(_rule, deleted), [(acl.error_code, acl.error_message) for acl in deleted])
        )
        return list(dict.fromkeys(map(_rule, deleted)))

    return await retrying(cluster, "the access rules", ask)


def _creation(rule: Rule) -> AclCreation:
    pattern, entry = rule
    return AclCreation(
        resource_type=pattern.type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _parts(found_by: Filter) -> dict[str, Any]:
    """A filter in the fields that requests to describe and to delete have in common."""
    return {
        "resource_type_filter": found_by.type,
        "resource_name_filter": found_by.name,
        "pattern_type_filter": found_by.pattern,
        "principal_filter": found_by.principal,
        "host_filter": found_by.host,
        "operation": found_by.operation,
        "permission_type": found_by.permission,
    }


def _rule(acl: DeleteAclsMatchingAcl) -> Rule:
    return Rule(
        _pattern(acl.resource_type, acl.resource_name, acl.pattern_type),
        _entry(acl.principal, acl.host, acl.operation, acl.permission_type),
    )


def _pattern(kind: int, name: str, pattern: int) -> Pattern:
    return Pattern(known(ResourceType, kind), name, known(PatternType, pattern))


def _entry(principal: str, host: str, operation: int, permission: int) -> Entry:
    return Entry(principal, host, known(Operation, operation), known(Permission, permission))
