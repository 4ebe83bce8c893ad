"""DeleteAcls (key 31): remove the access rules that match filters (KIP-140).

Each filter is answered with what it matched, and of each rule whether it is gone. Version 0 knows
no prefixes; a filter then means literal patterns, with ``*`` among them (KIP-290). An UNKNOWN part
closes the connection, as in Kafka; a number that is new to this broker is INVALID_REQUEST.
"""

import logging
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreError
from qbus.security.acls import Operation
from qbus.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

from ...controller.acls import Removed
from ..context import RequestContext
from .acl_messages import check, read_filter

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Remove what each filter matches."""
    filters = [read_filter(wanted) for wanted in request.filters]
    try:
        check(broker, context, Operation.ALTER)
        readable = [one for one in filters if not one.has_unknown]
        removed = iter(await broker.controller.acls.remove(readable))
    except (ApiError, StoreError) as error:
        return DeleteAclsResponse(filter_results=[_failed(error) for _ in filters])
    results = [
        _invalid() if one.has_unknown else _result(broker, context, next(removed))
        for one in filters
    ]
    return DeleteAclsResponse(filter_results=results)


def _failed(error: ApiError | StoreError) -> DeleteAclsFilterResult:
    code = error.code if isinstance(error, ApiError) else ErrorCode.REQUEST_TIMED_OUT
    return DeleteAclsFilterResult(error_code=code, error_message=str(error))


def _invalid() -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="the filter has a number that this broker does not know",
    )


def _result(
    broker: "Broker", context: RequestContext, removed: list[Removed]
) -> DeleteAclsFilterResult:
    for rule, error in removed:
        if error is None:
            _log.info("access rule removed by %s: %s", context.sender, rule)
            if broker.audit is not None:
                broker.audit.administration(context.caller, "remove access rule", str(rule))
    return DeleteAclsFilterResult(matching_acls=[_matching(one) for one in removed])


def _matching(removed: Removed) -> DeleteAclsMatchingAcl:
    (pattern, entry), error = removed
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
