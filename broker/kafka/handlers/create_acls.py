"""CreateAcls (key 30): add access rules (KIP-140).

Each rule is added for itself; one that is there already is no error. What is added counts here when
it is answered, and on the other brokers as soon as they have read the change. An UNKNOWN part
closes the connection, as in Kafka; a number that is new to this broker is INVALID_REQUEST.
"""

import logging
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.security.acls import (
    CLUSTER_NAME,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    known,
)
from qbus.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

from ..context import RequestContext
from .acl_messages import check, check_numbers

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)


async def handle(
    broker: "Broker", context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Add each rule that is valid."""
    for one in request.creations:
        check_numbers(
            one.resource_type, one.resource_pattern_type, one.operation, one.permission_type
        )
    try:
        check(broker, context, Operation.ALTER)
    except ApiError as error:
        return CreateAclsResponse(results=[_result(error) for _ in request.creations])
    results: list[ApiError | None] = []
    rules: dict[int, Rule] = {}
    for place, creation in enumerate(request.creations):
        try:
            rules[place] = _read(creation)
            results.append(None)
        except ApiError as error:
            results.append(error)
    outcomes = await broker.controller.acls.add(list(rules.values()))
    for (place, rule), outcome in zip(rules.items(), outcomes, strict=True):
        results[place] = outcome
        if outcome is None:
            _log.info("access rule added by %s: %s", context.sender, rule)
            if broker.audit is not None:
                broker.audit.administration(context.caller, "add access rule", str(rule))
    return CreateAclsResponse(results=[_result(error) for error in results])


def _result(error: ApiError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _read(creation: AclCreation) -> Rule:
    """The rule to add.

    Raises:
        ApiError: INVALID_REQUEST, there can be no such rule.
    """
    pattern = Pattern(
        known(ResourceType, creation.resource_type),
        creation.resource_name,
        known(PatternType, creation.resource_pattern_type),
    )
    entry = Entry(
        creation.principal,
        creation.host,
        known(Operation, creation.operation),
        known(Permission, creation.permission_type),
    )
    problem = _problem(pattern) or _problem_of_entry(entry)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return Rule(pattern, entry)


def _problem(pattern: Pattern) -> str | None:
    if pattern.type <= ResourceType.ANY:
        return f"Invalid resourceType {pattern.type.name}"
    if pattern.pattern not in {PatternType.LITERAL, PatternType.PREFIXED}:
        return f"Invalid patternType {pattern.pattern.name}"
    if not pattern.name:
        return "Invalid empty resource name"
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return None


def _problem_of_entry(entry: Entry) -> str | None:
    kind, _, name = entry.principal.partition(":")
    if entry.operation <= Operation.ANY:
        return f"Invalid operation {entry.operation.name}"
    if entry.permission not in {Permission.ALLOW, Permission.DENY}:
        return f"Invalid permissionType {entry.permission.name}"
    if not (kind and name):
        return f"Could not parse principal from {entry.principal!r}: expected User:name"
    if not entry.host:
        return "Invalid empty host: expected an IP address, or * for every one"
    return None
