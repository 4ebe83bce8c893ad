"""The metadata store: a small tree of versioned nodes, as ZooKeeper keeps one.

Everything that decides something is one transaction that checks the versions it was decided from.
Two stores implement this, over the same contract tests: an embedded one and ZooKeeper.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from functools import cached_property
from typing import Self

from qbus.metadata.errors import (
    AccessDenied,
    ChangesLost,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    TransactionTooLarge,
    VersionConflict,
)
from qbus.metadata.feed import Change, follow
from qbus.metadata.operations import ANY_VERSION, Check, Create, Delete, Node, Op, Result, Set
from qbus.metadata.timings import Timings

__all__ = [
    "ANY_VERSION",
    "AccessDenied",
    "Change",
    "ChangesLost",
    "Check",
    "Create",
    "Delete",
    "MetadataStore",
    "NoChildrenForEphemerals",
    "NoNode",
    "Node",
    "NodeError",
    "NodeExists",
    "NotEmpty",
    "Op",
    "Result",
    "SessionState",
    "Set",
    "StoreError",
    "StoreUnavailable",
    "StoreUnusable",
    "TransactionTooLarge",
    "VersionConflict",
]


class SessionState(Enum):
    """What the store knows of its session.

    While SUSPENDED the session may have ended without our knowing; LOST is final: its ephemeral
    nodes are gone.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


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

    def changes(self, after: int) -> AsyncIterator[list[Change]]:
        """The changes after the one with sequence number ``after``, as they come.

        Raises:
            ChangesLost: some were pruned already; read everything anew, then follow from there.
            StoreUnavailable: at the latest when the session ends.
        """
        return follow(self, after)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
