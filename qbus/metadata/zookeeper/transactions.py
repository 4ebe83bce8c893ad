"""Transactions as requests of ZooKeeper, with the creation of missing parents.

ZooKeeper creates no parents, so their creation becomes part of the same transaction. Which parents
are missing is read before; if that has changed meanwhile, the transaction does not apply.
"""

from collections.abc import Container, Sequence
from struct import Struct
from typing import Any, NamedTuple

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
from qbus.metadata.store import Create, Delete, Op, Result, Set
from qbus.metadata.znodes import is_sensitive
from qbus.metadata.zookeeper.handler import Answer
from qbus.metadata.zookeeper.library import KazooClient, exceptions, serialization

MAX_BYTES = 0xFFFFF
"""The largest request that ZooKeeper accepts: the default of its ``jute.maxbuffer``."""

# The layout of a request and of its answer (zookeeper.jute: MultiHeader, and the records of each
# operation). kazoo's own encoding makes several objects for each operation, which a commit of
# hundreds of offsets pays for.
_HEAD = Struct(">i?ii")  # the operation's type, whether this is the end, an error; a path's length
_END = Struct(">i?i").pack(-1, True, -1)
_MULTI_HEADER = Struct(">i?i")
_INT = Struct(">i")
_LENGTH = 4
_STAT_SIZE = 68
_STAT_VERSION = 32  # where in a Stat the node's version is
_REQUEST_HEADER = 8

_CREATE, _DELETE, _SET, _CHECK = 1, 2, 5, 13
_FAILED = -1
_NO_ERROR = -1

_EPHEMERAL, _SEQUENTIAL = 1, 2  # ZooKeeper's CreateMode

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
        steps.append(Step(operation, True))
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


class Multi:
    """A transaction as a request of kazoo: its type, its bytes, and the decoding of its answer."""

    type = 14

    def __init__(
        self, steps: Sequence[Step], prefix: str, acl: bytes, secret_acl: bytes | None = None
    ) -> None:
        """``prefix`` precedes every path; ``acl``: see :func:`encode_acl`.

        ``secret_acl`` is that of nodes with secrets in them; None: the same.
        """
        parts: list[bytes] = []
        for operation, _ in steps:
            is_secret = secret_acl is not None and is_sensitive(operation.path)
            _encode(operation, prefix, secret_acl if is_secret and secret_acl else acl, parts)
        parts.append(_END)
        self._body = b"".join(parts)

    @property
    def size(self) -> int:
        """The request's size in bytes, with its header."""
        return len(self._body) + _REQUEST_HEADER

    def serialize(self) -> bytes:
        """Return the request after its header."""
        return self._body

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Decode an answer for each operation: a path, a version, True, or an exception."""
        answers: list[Any] = []
        while True:
            kind, is_end, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if is_end:
                return answers
            if kind == _SET:
                answers.append(_INT.unpack_from(data, offset + _STAT_VERSION)[0])
                offset += _STAT_SIZE
            elif kind == _CREATE:
                path, offset = serialization.read_string(data, offset)
                answers.append(path)
            elif kind == _FAILED:
                (error,) = _INT.unpack_from(data, offset)
                answers.append(exceptions.EXCEPTIONS[error]())
                offset += _INT.size
            else:
                answers.append(True)


def _encode(operation: Op, prefix: str, acl: bytes, parts: list[bytes]) -> None:
    """Append an operation's bytes to ``parts``."""
    path = (prefix + operation.path if operation.path != ROOT else prefix or ROOT).encode()
    if isinstance(operation, Set):
        parts += (_HEAD.pack(_SET, False, _NO_ERROR, len(path)), path)
        parts += (_INT.pack(len(operation.data)), operation.data, _INT.pack(operation.version))
    elif isinstance(operation, Create):
        flags = _EPHEMERAL * operation.ephemeral + _SEQUENTIAL * operation.sequential
        parts += (_HEAD.pack(_CREATE, False, _NO_ERROR, len(path)), path)
        parts += (_INT.pack(len(operation.data)), operation.data, acl, _INT.pack(flags))
    else:
        kind = _DELETE if isinstance(operation, Delete) else _CHECK
        parts += (_HEAD.pack(kind, False, _NO_ERROR, len(path)), path)
        parts.append(_INT.pack(operation.version))


def encode_acl(acl: Sequence[Any]) -> bytes:
    """Encode an access control list as it is in the creation of a node."""
    creation = serialization.Create("", b"", acl, 0).serialize()
    return bytes(creation[2 * _LENGTH : -_LENGTH])  # without path, data and flags


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
            return NoChildrenForEphemerals(split(path)[0])
        kind = _ERRORS.get(type(self.error))
        return StoreError(f"{path}: {self.error!r}") if kind is None else kind(path)


def send(client: KazooClient, request: Multi) -> Answer:
    """Send a transaction in the way of kazoo's own methods."""
    answer: Answer = client.handler.async_result()
    client._call(request, answer)
    return answer


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
        version: int = answer
        return version
    if isinstance(operation, Create):
        return str(answer)[prefix:]
    return None
