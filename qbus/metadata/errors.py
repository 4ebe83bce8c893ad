"""How a store fails."""

# ruff: noqa: N818 - the names say what was found, as ZooKeeper's do

from qbus.errors import QbusError


class StoreError(QbusError):
    """A transaction or a read failed."""


class StoreUnavailable(StoreError):
    """The store cannot be used: not now, or not any more.

    Whether a write that fails with this was done is unknown. It was done once at most, and not
    after the store is connected again: what is read then tells.
    """

    @property
    def retriable(self) -> bool:
        """It may be there later."""
        return True


class StoreUnusable(StoreUnavailable):
    """The store cannot be opened: corrupt, locked, or of a version that is not known here."""

    @property
    def retriable(self) -> bool:
        """Somebody has to do something about it."""
        return False


class AccessDenied(StoreError):
    """The store does not let us read or write a node; ``path`` says which."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the metadata store denies access to {path}")
        self.path = path


class TransactionTooLarge(StoreError):
    """The transaction is larger than the store takes in one; none of it was applied."""


class NodeError(StoreError):
    """A transaction did not apply, none of it; ``path`` says where."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{type(self).__name__}: {path}")
        self.path = path


class VersionConflict(NodeError):
    """The node was changed since the version that was checked."""


class NodeExists(NodeError):
    """The node to create is there already."""


class NoNode(NodeError):
    """The node is not there."""


class NotEmpty(NodeError):
    """The node to delete has children."""


class NoChildrenForEphemerals(NodeError):
    """The parent of the node to create is ephemeral."""


class ChangesLost(StoreError):
    """Changes were pruned that were not seen: everything has to be read anew."""


class MalformedNode(StoreError):
    """A node holds something else than belongs there."""
