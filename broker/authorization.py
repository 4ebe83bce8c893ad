"""Who may do what to which resource: the question that every protocol of the broker asks.

Operations and types of resources have the numbers of Kafka's ``AclOperation`` and ``ResourceType``.
Without an :class:`Authorizer` everything is allowed.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from .net.peer import Principal


class Operation(IntEnum):
    """What is done to a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kinds of resources."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One resource by its name."""

    type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")

# What can be done to each type of resource (KIP-430).
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def topic(name: str) -> Resource:
    """A topic as a resource."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """A consumer or share group as a resource."""
    return Resource(ResourceType.GROUP, name)


def transactional_id(name: str) -> Resource:
    """A transactional id as a resource."""
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def bits(operations: Iterable[Operation]) -> int:
    """A set of operations as a number: each is the bit of its own number (KIP-430)."""
    return sum(1 << operation for operation in operations)


class Authorizer(Protocol):
    """Decides. It is asked in the event loop, so it answers from memory."""

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Whether ``principal``, connected from the address ``host``, may do that."""
