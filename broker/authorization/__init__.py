"""Who may do what to which resource: the question that every protocol of the broker asks.

The rules and how they decide are :mod:`qbus.security.acls`. Here is who asks them: an
:class:`Authorizer` decides, and :class:`AccessControl` asks it, counts what it denies, and has it
recorded. Without an authorizer everything is allowed.
"""

from typing import Final

from qbus.security.acls import CLUSTER_NAME, OPERATIONS, Operation, Resource, ResourceType

from ..audit import Caller
from .access import AccessControl, Sight, bits
from .authorizer import AclAuthorizer, Authorizer

__all__ = [
    "CLUSTER",
    "OPERATIONS",
    "AccessControl",
    "AclAuthorizer",
    "Authorizer",
    "Caller",
    "Operation",
    "Resource",
    "ResourceType",
    "Sight",
    "bits",
    "group",
    "topic",
    "transactional_id",
    "user",
]

CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


def topic(name: str) -> Resource:
    """A topic as a resource."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """A consumer or share group as a resource."""
    return Resource(ResourceType.GROUP, name)


def transactional_id(name: str) -> Resource:
    """A transactional id as a resource."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def user(name: str) -> Resource:
    """A user as a resource."""
    return Resource(ResourceType.USER, name)
