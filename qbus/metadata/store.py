"""The metadata store: a small tree of versioned nodes, as ZooKeeper keeps one.

Everything that decides something is one transaction that checks the versions it was decided from.
Two stores implement this, over the same contract tests: an embedded one and ZooKeeper.
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
    """What is stored at a path: bytes, and how often they were set since the node was created."""

    data: bytes
    version: int


class Create(NamedTuple):
    """Create a node, whose version is then 0, and its parents where they are missing.

    ``ephemeral``: gone when the session of its store ends; it has no children. ``sequential``: ten
    digits are appended to the path, always greater than those given before below the same parent.
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
    """Check that a node is there, and its version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Result = str | int | None
"""Of Create the path, of Set the new version, else None."""


def check(operation: Op) -> None:
    """Check that every store would take this operation, whether or not it then applies.

    Raises:
        ValueError: its path is none.
        TypeError: its data are no bytes.
    """
    paths.check(operation.path)
    if isinstance(operation, Create | Set) and not isinstance(operation.data, bytes):
        raise TypeError(f"{operation.path}: a node's data is bytes, not {type(operation.data)}")


class SessionState(Enum):
    """What the store knows of its session.

    While SUSPENDED the session may have ended without our knowing; LOST is final: its ephemeral
    nodes are gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Timings:
    """A histogram: requests by bucket, and their ``seconds`` together."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class MetadataStore(ABC):
    """A session with a store. Every method raises StoreUnavailable when the store cannot be used.

    Methods are called from one event loop; what one caller wrote, its next read sees. What is asked
    for without waiting is done in that order, save that a transaction that has to create parents
    may be overtaken. ``timings`` has how long requests took.
    """

    @cached_property
    def timings(self) -> Timings:
        """How long requests took, from asking to the answer."""
        return Timings()

    @property
    @abstractmethod
    def state(self) -> SessionState:
        """The session's state."""

    @abstractmethod
    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` from the event loop whenever the state changes."""

    @abstractmethod
    async def start(self) -> None:
        """Open the store and begin a session.

        Raises:
            StoreUnusable: it cannot be opened.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for, and end the session."""

    @abstractmethod
    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """The node at ``path``, if there is one.

        ``watch`` is called once, from the event loop, when the node was created, set or deleted
        since, or the session ended; now and then for nothing.
        """

    @abstractmethod
    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Those nodes of many that there are, by their paths; cheaper than one by one.

        Not necessarily as they were at one moment.
        """

    @abstractmethod
    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The sorted names of the nodes below ``path``; none when there is no such node.

        ``watch`` is called once, from the event loop, when a child was created or deleted since, or
        the session ended; now and then for nothing.
        """

    @abstractmethod
    async def tree(self, path: str) -> dict[str, Node]:
        """The node at ``path`` and all below it, by their paths; empty when there is none.

        Not necessarily as they were at one moment.
        """

    @abstractmethod
    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply all of the operations in their order and durably, or none of them.

        Missing parents of created nodes are created with them. Nothing is ever tried again when
        its outcome is unknown.

        Raises:
            VersionConflict, NodeExists, NoNode, NotEmpty, NoChildrenForEphemerals: the first
                operation that does not apply.
            TransactionTooLarge: it is more than the store takes in one.
            AccessDenied: the store keeps a node from us.
            StoreUnavailable: whether it was applied is unknown.
        """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
