"""The metadata store: its interface, three implementations, and the layout of its nodes."""

from qbus.metadata.embedded import EmbeddedStore
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
from qbus.metadata.feed import Change
from qbus.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    Op,
    Result,
    SessionState,
    Set,
)

__all__ = [
    "ANY_VERSION",
    "AccessDenied",
    "Change",
    "ChangesLost",
    "Check",
    "Create",
    "Delete",
    "EmbeddedStore",
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
