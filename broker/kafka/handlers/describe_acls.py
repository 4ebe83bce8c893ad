"""DescribeAcls (key 29): the access rules that match a filter (KIP-140).

Answered from memory, as this broker decides by them. Version 0 knows no prefixes; a filter then
means literal patterns, with ``*`` among them (KIP-290). A filter with an UNKNOWN part closes the
connection, as in Kafka; one with a number that is new to this broker matches nothing.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError
from qbus.security.acls import Operation, Pattern
from qbus.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from ..context import RequestContext
from .acl_messages import check, read_filter

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """List what matches, by pattern."""
    wanted = read_filter(request)
    try:
        check(broker, context, Operation.DESCRIBE)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[Pattern, DescribeAclsResource] = {}
    for pattern, entry in () if wanted.has_unknown else broker.metadata.acls.find(wanted):
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern,
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
