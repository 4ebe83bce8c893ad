"""Transactions as requests of ZooKeeper, with the creation of missing parents.

ZooKeeper creates no parents, so their creation becomes part of the same transaction. Which parents
are missing is read before; if that has changed meanwhile, the transaction does not apply.
"""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from qbus.metadata import paths
from qbus.metadata.errors import (
    AccessDenied,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
    VersionConflict,
)
from qbus.metadata.paths import ROOT, split
from qbus.metadata.store import Check, Create, Delete, Op, Result, Set
from qbus.metadata.zookeeper.handler import Answer
from qbus.metadata.zookeeper.library import KazooClient, exceptions, serialization

MAX_BYTES = 0xFFFFF
"""The largest request that ZooKeeper accepts: the default of its ``jute.maxbuffer``."""

# Sizes on the wire (zookeeper.jute): 4 bytes for an int and for each length, 9 for a MultiHeader.
_LENGTH = 4
_HEADER = 9
_REQUEST = 8 + _HEADER


_EPHEMERAL, _SEQUENTIAL = 1, 2  # ZooKeeper's CreateMode

_COUNT = 4  # bytes

_NOT_TO_BLAME = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)

_ERRORS = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: VersionConflict,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoAuthError: AccessDenied,
}


class Step(NamedTuple):
    """An operation of the request: one of the transaction, or the creation of a missing parent."""

    operation: Op
    is_asked_for: bool


def plan(operations: Sequence[Op], missing: Container[str]) -> list[Step]:
    """Insert the creations of ``missing`` parents before the operations that need them."""
    if not any(isinstance(operation, Create) for operation in operations):
        return [Step(operation, True) for operation in operations]
    steps: list[Step] = []
    created: set[str] = set()
    deleted: set[str] = set()
    for operation in operations:
        if isinstance(operation, Create):
            for parent in reversed(ancestors(operation.path)):
                # Nodes below one that was just created exist only if created since.
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
    """Return the ancestors of ``path``, nearest first, without the root."""
    above = []
    while (path := split(path)[0]) != ROOT and path:
        above.append(path)
    return above


def parents_of(operations: Sequence[Op]) -> list[str]:
    """Return every node that has to exist for the creations among the operations."""
    created = [operation.path for operation in operations if isinstance(operation, Create)]
    return list(dict.fromkeys(parent for path in created for parent in ancestors(path)))


def size(steps: Sequence[Step], prefix: int, acl: int) -> int:
    """Return the request's size in bytes; ``prefix`` and ``acl`` are sizes of chroot and ACL."""
    return _REQUEST + sum(_size(step.operation, acl) + prefix for step in steps)


def _size(operation: Op, acl: int) -> int:
    path = _HEADER + _LENGTH + len(operation.path.encode())
    if isinstance(operation, Create):
        return path + _LENGTH + len(operation.data) + acl + 4
    if isinstance(operation, Set):
        return path + _LENGTH + len(operation.data) + 4
    return path + 4


class Refusal(NamedTuple):
    """The first step that did not apply, and why."""

    step: Step
    error: Exception

    @property
    def is_about_parents(self) -> bool:
        """Whether parents are missing or appeared meanwhile, so that a new plan is needed."""
        if isinstance(self.error, exceptions.NodeExistsError):
            return not self.step.is_asked_for
        creates = isinstance(self.step.operation, Create)
        return creates and isinstance(self.error, exceptions.NoNodeError)

    def as_error(self) -> StoreError:
        """Convert to an error of the metadata store."""
        path = self.step.operation.path
        if isinstance(self.error, exceptions.NoChildrenForEphemeralsError):
            return NoChildrenForEphemerals(paths.split(path)[0])
        kind = _ERRORS.get(type(self.error))
        return StoreError(f"{path}: {self.error!r}") if kind is None else kind(path)


def send(client: KazooClient, steps: Sequence[Step], prefix: str, acl: Sequence[Any]) -> Answer:
    """Send the steps as one request, with ``prefix`` before every path."""
    # Not through the request's own methods, which repeat checks that are done, slowly.
    request = client.transaction()
    request.operations.extend(_encodable(step.operation, prefix, acl) for step in steps)
    answer: Answer = request.commit_async()
    return answer


def _encodable(operation: Op, prefix: str, acl: Sequence[Any]) -> Any:
    path = prefix + operation.path if operation.path != paths.ROOT else prefix or paths.ROOT
    match operation:
        case Set():
            return serialization.SetData(path, operation.data, operation.version)
        case Create():
            flags = _EPHEMERAL * operation.ephemeral + _SEQUENTIAL * operation.sequential
            return serialization.Create(path, operation.data, acl, flags)
        case Check():
            return serialization.CheckVersion(path, operation.version)
        case Delete():
            return serialization.Delete(path, operation.version)


def acl_size(acl: Sequence[Any]) -> int:
    """Return the size in bytes of an access control list in a request."""
    without = serialization.Create("", b"", (), 0).serialize()
    return _COUNT + len(serialization.Create("", b"", acl, 0).serialize()) - len(without)


def refusal(steps: Sequence[Step], answers: Sequence[Any]) -> Refusal | None:
    """Return why the transaction was refused, or None if it was applied."""
    if not any(isinstance(answer, Exception) for answer in answers):
        return None
    for step, answer in zip(steps, answers, strict=True):
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
            return Refusal(step, answer)
    return Refusal(steps[0], answers[0])


def results(steps: Sequence[Step], answers: Sequence[Any], prefix: str) -> list[Result]:
    """Return the results of the transaction's own operations."""
    return [
        _result(step.operation, answer, len(prefix))
        for step, answer in zip(steps, answers, strict=True)
        if step.is_asked_for
    ]


def _result(operation: Op, answer: Any, prefix: int) -> Result:
    if isinstance(operation, Set):
        version: int = answer.version
        return version
    if isinstance(operation, Create):
        return str(answer)[prefix:]
    return None
