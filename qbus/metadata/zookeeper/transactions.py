"""From a transaction to the operations that ZooKeeper is sent: those, and missing parents.

ZooKeeper creates no parents. They become part of the same transaction, so that it stays one: which
are missing is asked before, and if that has changed meanwhile, nothing of the transaction applies.
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
"""The largest request that ZooKeeper reads: its ``jute.maxbuffer``, as it is by default."""

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


class Refusal(NamedTuple):
    """The first step that did not apply, and why."""

    step: Step
    error: Exception

    @property
    def is_about_parents(self) -> bool:
        """Whether parents are missing, or have come meanwhile: the plan has to be made anew."""
        if isinstance(self.error, exceptions.NodeExistsError):
            return not self.step.is_asked_for
        creates = isinstance(self.step.operation, Create)
        return creates and isinstance(self.error, exceptions.NoNodeError)

    def as_error(self) -> StoreError:
        """What it is for the store's users."""
        path = self.step.operation.path
        if isinstance(self.error, exceptions.NoChildrenForEphemeralsError):
            return NoChildrenForEphemerals(paths.split(path)[0])
        kind = _ERRORS.get(type(self.error))
        return StoreError(f"{path}: {self.error!r}") if kind is None else kind(path)


def send(client: KazooClient, steps: Sequence[Step], prefix: str, acl: Sequence[Any]) -> Answer:
    """Send the steps as one request, with ``prefix`` before every path."""
    # Not through the request's own methods, which do again, slowly, what is done already.
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
    """The bytes that an access control list takes in a request."""
    without = serialization.Create("", b"", (), 0).serialize()
    return _COUNT + len(serialization.Create("", b"", acl, 0).serialize()) - len(without)


def refusal(steps: Sequence[Step], answers: Sequence[Any]) -> Refusal | None:
    """Why nothing was applied, if so."""
    if not any(isinstance(answer, Exception) for answer in answers):
        return None
    for step, answer in zip(steps, answers, strict=True):
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
            return Refusal(step, answer)
    return Refusal(steps[0], answers[0])


def results(steps: Sequence[Step], answers: Sequence[Any], prefix: str) -> list[Result]:
    """What each operation of the transaction returns."""
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
