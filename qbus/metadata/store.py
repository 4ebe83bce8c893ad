"""The metadata store: a small tree of versioned nodes, as ZooKeeper keeps one.

Every decision is one transaction that checks the versions it was made from. Three stores implement
this interface and pass the same contract tests: an embedded one, one that another process serves,
and ZooKeeper.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple, Self

from qbus.metadata import paths

ANY_VERSION = -1

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds; above the last is one more."""


class Node(NamedTuple):
    """The content of a node: its data, and how often they were set since its creation."""

    data: bytes
    version: int


class Create(NamedTuple):
    """Create a node with version 0, and its parents where they are missing.

    ``ephemeral``: the node disappears when the session ends, and cannot have children.
    ``sequential``: ten digits are appended to the path, larger than all given before below the same
    parent.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Replace a node's data, which adds 1 to its version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node that has no children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Check that a node exists, and its version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Result = str | int | None
"""The path for Create, the new version for Set, else None."""


def check(operation: Op) -> None:
    """Check that an operation is well-formed; it may still not apply.

    Raises:
        ValueError: its path is invalid.
        TypeError: its data are not bytes.
    """
    paths.check(operation.path)
    if isinstance(operation, (Create, Set)) and not isinstance(operation.data, bytes):
        raise TypeError(f"{operation.path}: a node's data is bytes, not {type(operation.data)}")


class SessionState(Enum):
    """The state of a session, as the client knows it.

    While SUSPENDED, the session may have ended unnoticed. LOST is final: its ephemeral nodes are
    gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Timings:
    """A histogram of request durations: counts by bucket, and the sum in ``seconds``."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class MetadataStore(ABC):
    """A session with a store. Every method raises StoreUnavailable when the store cannot be used.

    Call the methods from one event loop. A read sees the caller's earlier writes. Concurrent
    requests are done in the order of the calls, but others may overtake a transaction that has to
    create parents.
    """

    @cached_property
    def timings(self) -> Timings:
        """Durations of requests, from the call to the answer."""
        return Timings()

    @property
    def is_shared(self) -> bool:
        """Whether other processes may have sessions with the same store."""
        return True

    @property
    @abstractmethod
    def state(self) -> SessionState:
        """The session's state."""

    @abstractmethod
    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` from the event loop whenever the state changes."""

    def doubt(self) -> None:  # noqa: B027 - a store of this process has no session to lose
        """Be SUSPENDED until the store has answered that the session lives, if it may have ended.

        For a process that stood still: the end of its session may be unread.
        """

    @abstractmethod
    async def start(self) -> None:
        """Open the store and begin a session.

        Raises:
            StoreUnusable: the store cannot be opened.
            StoreUnavailable: it cannot be opened for now.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish requests under way, and end the session."""

    @abstractmethod
    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """Return the node at ``path``, or None.

        ``watch`` is called once, from the event loop, after the node was created, set or deleted or
        the session ended; rarely without a reason.
        """

    @abstractmethod
    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Return those of the nodes that exist, by path; cheaper than single reads.

        The result is not a consistent snapshot.
        """

    @abstractmethod
    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """Return the sorted names of the children of ``path``; none if it does not exist.

        ``watch`` is called once, from the event loop, after a child was created or deleted or the
        session ended; rarely without a reason.
        """

    @abstractmethod
    async def tree(self, path: str) -> dict[str, Node]:
        """Return the node at ``path`` and all below it, by path; empty if it does not exist.

        The result is not a consistent snapshot.
        """

    @abstractmethod
    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply all operations in order and durably, or none of them.

        Missing parents of created nodes are created with them. A transaction with an unknown
        outcome is never retried.

        Raises:
            VersionConflict, NodeExists, NoNode, NotEmpty, NoChildrenForEphemerals: the first
                operation that does not apply.
            TransactionTooLarge: the store does not take so much in one transaction.
            AccessDenied: the store denies access to a node.
            StoreUnavailable: whether it was applied is unknown.
        """

    async def lazy_transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Like :meth:`transaction`, but a crash of the machine may undo it.

        With it, it undoes all lazy ones since. A crash of the process does not, and any later
        transaction that is not lazy makes it durable. Stores that gain nothing from that do as
        ever.
        """
        return await self.transaction(operations)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
