"""The metadata store: a small tree of versioned nodes, as ZooKeeper keeps one.

Everything that decides something is one transaction that checks the versions it was decided from.
Two stores implement this, over the same contract tests: an embedded one and ZooKeeper.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import Self

from .errors import (
    ChangesLost,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    VersionConflict,
)
from .feed import Change, follow
from .operations import ANY_VERSION, Check, Create, Delete, Node, Op, Result, Set

__all__ = [
    "ANY_VERSION",
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

    Methods are called from one event loop; what one caller wrote, its next read sees.
    """

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
    async def get(self, path: str) -> Node | None:
        """The node at ``path``, if there is one."""

    @abstractmethod
    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The sorted names of the nodes below ``path``; none when there is no such node.

        ``watch`` is called once, from the event loop, when a child was created or deleted since, or
        the session ended; now and then for nothing.
        """

    @abstractmethod
    async def tree(self, path: str) -> dict[str, Node]:
        """The node at ``path`` and all below it, by their paths; empty when there is none."""

    @abstractmethod
    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply all of the operations in their order and durably, or none of them.

        Parents that were created on the way may stay when the transaction fails.

        Raises:
            VersionConflict, NodeExists, NoNode, NotEmpty, NoChildrenForEphemerals: the first
                operation that does not apply.
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
