"""What a store holds, and what a transaction is made of."""

from typing import NamedTuple

from qbus.metadata import paths

ANY_VERSION = -1


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
