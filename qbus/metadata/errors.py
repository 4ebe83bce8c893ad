"""The errors of the metadata store."""

# ruff: noqa: N818 - names in the style of ZooKeeper's

from qbus.errors import QbusError


class StoreError(QbusError):
    """A transaction or a read failed."""


class StoreUnavailable(StoreError):
    """The store cannot be used for now, or for good.

    Whether a write that fails with this was done is unknown. It was done at most once, and not
    after the store is connected again, so a read tells then.
    """

    @property
    def retriable(self) -> bool:
        """The store may be available later."""
        return True


class StoreUnusable(StoreUnavailable):
    """The store cannot be opened: it is corrupt, locked, or of an unknown version."""

    @property
    def retriable(self) -> bool:
        """An operator has to act."""
        return False


class AccessDenied(StoreError):
    """The store denies access to the node ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the metadata store denies access to {path}")
        self.path = path


class TransactionTooLarge(StoreError):
    """The transaction is larger than the store allows; it was not applied."""


class NodeError(StoreError):
    """A transaction did not apply, because of the node ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{type(self).__name__}: {path}")
        self.path = path


class VersionConflict(NodeError):
    """The node has another version than the one that was checked."""


class NodeExists(NodeError):
    """The node to create exists already."""


class NoNode(NodeError):
    """The node does not exist."""


class NotEmpty(NodeError):
    """The node to delete has children."""


class NoChildrenForEphemerals(NodeError):
    """The parent of the node to create is ephemeral."""


class ChangesLost(StoreError):
    """Changes were pruned before they were seen; everything has to be read again."""


class MalformedNode(StoreError):
    """A node's content cannot be decoded."""
