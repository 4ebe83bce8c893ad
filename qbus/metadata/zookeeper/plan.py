"""From a transaction to the operations that ZooKeeper is sent: those, and missing parents.

ZooKeeper creates no parents. They become part of the same transaction, so that it stays one: which
are missing is asked before, and if that has changed meanwhile, nothing of the transaction applies.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from qbus.metadata.operations import Create, Delete, Op, Set
from qbus.metadata.paths import ROOT, split

MAX_BYTES = 0xFFFFF
"""The largest request that ZooKeeper reads: its ``jute.maxbuffer``, as it is by default."""

# Sizes on the wire (zookeeper.jute): 4 bytes for an int and for each length, 9 for a MultiHeader.
_LENGTH = 4
_HEADER = 9
_REQUEST = 8 + _HEADER


class Step(NamedTuple):
    """An operation of the plan, which the transaction names or which creates a missing parent."""

    operation: Op
    is_asked_for: bool


def plan(operations: Sequence[Op], missing: Container[str]) -> list[Step]:
    """The operations, each creation preceded by those of its parents that are ``missing``."""
    if not any(isinstance(operation, Create) for operation in operations):
        return [Step(operation, True) for operation in operations]
    steps: list[Step] = []
    created: set[str] = set()
    deleted: set[str] = set()
    for operation in operations:
        if isinstance(operation, Create):
            for parent in reversed(ancestors(operation.path)):
                # Below what was created just now there is only what was created since.
                is_missing = parent in missing or parent in deleted or split(parent)[0] in created
                if is_missing and parent not in created:
                    steps.append(Step(Create(parent), is_asked_for=False))
                    created.add(parent)
            if not operation.sequential:
                created.add(operation.path)
        elif isinstance(operation, Delete):
            created.discard(operation.path)
            deleted.add(operation.path)
        steps.append(Step(operation, is_asked_for=True))
    return steps


def ancestors(path: str) -> list[str]:
    """The nodes above ``path``, the nearest first, without the root."""
    above = []
    while (path := split(path)[0]) != ROOT and path:
        above.append(path)
    return above


def parents_of(operations: Sequence[Op]) -> list[str]:
    """Every node that has to be there for the creations among the operations."""
    created = [operation.path for operation in operations if isinstance(operation, Create)]
    return list(dict.fromkeys(parent for path in created for parent in ancestors(path)))


def size(steps: Sequence[Step], prefix: int, acl: int) -> int:
    """The bytes of the request; ``prefix`` is the size of the chroot, ``acl`` that of an ACL."""
    return _REQUEST + sum(_size(step.operation, acl) + prefix for step in steps)


def _size(operation: Op, acl: int) -> int:
    path = _HEADER + _LENGTH + len(operation.path.encode())
    if isinstance(operation, Create):
        return path + _LENGTH + len(operation.data) + acl + 4
    if isinstance(operation, Set):
        return path + _LENGTH + len(operation.data) + 4
    return path + 4
