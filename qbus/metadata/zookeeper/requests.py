"""A plan as kazoo's request, and what ZooKeeper answers to it."""

from collections.abc import Sequence
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
from qbus.metadata.operations import Check, Create, Delete, Op, Result, Set
from qbus.metadata.zookeeper.handler import Answer
from qbus.metadata.zookeeper.library import KazooClient, exceptions, serialization
from qbus.metadata.zookeeper.plan import Step

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
