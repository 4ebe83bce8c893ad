"""Access rules as requests and answers have them."""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.security.acls import Filter, Operation, PatternType, Permission, ResourceType, known
from qbus.wire.messages.delete_acls import DeleteAclsFilter
from qbus.wire.messages.describe_acls import DescribeAclsRequest

from ...authorization import CLUSTER
from ...net.connection import CloseConnection
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_UNKNOWN: Final = 0


def check(broker: "Broker", context: RequestContext, operation: Operation) -> None:
    """Check that the client may read or change access rules, and that they count here.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED, or SECURITY_DISABLED: there is no authorizer.
    """
    context.authorize(operation, CLUSTER)
    if broker.access.authorizer is None:
        raise ApiError(
            ErrorCode.SECURITY_DISABLED,
            "No Authorizer is configured: access rules have no effect on this broker until a "
            "listener authenticates its clients, or authorizer.class.name=acl",
        )


def check_numbers(*numbers: int) -> None:
    """Raises CloseConnection, as Kafka does: a part of a rule or of a filter is UNKNOWN."""
    if _UNKNOWN in numbers:
        raise CloseConnection("a part of an access rule or of a filter is UNKNOWN (0)")


def read_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    """A filter of rules; parts whose numbers mean nothing here are UNKNOWN."""
    check_numbers(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.operation,
        wanted.permission_type,
    )
    return Filter(
        known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        known(Operation, wanted.operation),
        known(Permission, wanted.permission_type),
    )
