"""What a served store and its sessions tell each other over a stream: frames of JSON.

A frame is a length of four bytes, big-endian, and a JSON array. A session asks ``[number, name,
arguments...]``; the answer is ``[number, result]`` or ``[number, null, error, text]``. A watch that
fires is ``[-number]``, with the number of the request that set it. Data are Latin-1 text.
"""

import json
from collections.abc import Iterable
from typing import Any

from qbus.metadata import errors
from qbus.metadata.errors import NodeError, StoreError, StoreUnavailable
from qbus.metadata.store import Check, Create, Delete, Node, Op, Set

LENGTH = 4

GET, GET_MANY, CHILDREN, TREE = "get", "get_many", "children", "tree"
TRANSACTION, LAZY_TRANSACTION = "transaction", "lazy_transaction"
PING, END = "ping", "end"

_OPERATIONS: dict[str, type[Op]] = {kind.__name__: kind for kind in (Create, Set, Delete, Check)}
_ERRORS: dict[str, type[Exception]] = {
    **{name: kind for name, kind in vars(errors).items() if isinstance(kind, type)},
    "ValueError": ValueError,
    "TypeError": TypeError,
}


def frame(message: list[Any]) -> bytes:
    """A message as it is sent."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    return len(body).to_bytes(LENGTH) + body


def load(body: bytes) -> list[Any]:
    """The message in a frame, without its length."""
    message: list[Any] = json.loads(body)
    return message


def operations_out(operations: Iterable[Op]) -> list[list[Any]]:
    """Operations for a message."""
    return [
        [type(one).__name__, *(_text(part) if isinstance(part, bytes) else part for part in one)]
        for one in operations
    ]


def operations_in(written: list[list[Any]]) -> list[Op]:
    """The operations in a message."""
    made: list[Op] = []
    for name, path, *rest in written:
        kind = _OPERATIONS[name]
        if kind in {Create, Set}:
            rest[0] = rest[0].encode("latin-1")
        made.append(kind(path, *rest))
    return made


def node_out(node: Node | None) -> list[Any] | None:
    """A node for a message."""
    return None if node is None else [_text(node.data), node.version]


def node_in(written: list[Any] | None) -> Node | None:
    """The node in a message."""
    return None if written is None else Node(written[0].encode("latin-1"), written[1])


def nodes_in(written: dict[str, list[Any]]) -> dict[str, Node]:
    """The nodes in a message, by path."""
    return {
        path: Node(data.encode("latin-1"), version) for path, (data, version) in written.items()
    }


def error_out(error: Exception) -> list[str]:
    """An error for a message: its kind, and what it is made from."""
    text = error.path if isinstance(error, NodeError) else str(error)
    return [type(error).__name__, text]


def error_in(kind: str, text: str) -> Exception:
    """The error in a message; of a kind that is not known here, a StoreUnavailable."""
    known = _ERRORS.get(kind)
    return StoreUnavailable(f"{kind}: {text}") if known is None else known(text)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


TOLD = (StoreError, ValueError, TypeError)
"""Errors that a session is told of as they are."""
