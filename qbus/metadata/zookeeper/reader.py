"""Reading nodes below a chroot.

Many nodes are read with one request: ZooKeeper's multi-read (from 3.6 on), which kazoo does not
have. Its layout is that of a transaction (zookeeper.jute, MultiHeader): headers with operations,
answered by headers with answers; each answer stands for itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import methodcaller
from struct import Struct
from typing import Any, TypeVar

from qbus.metadata import paths
from qbus.metadata.errors import AccessDenied, StoreUnavailable
from qbus.metadata.store import Node
from qbus.metadata.zookeeper.handler import Answer
from qbus.metadata.zookeeper.library import KazooClient, exceptions, serialization
from qbus.metadata.zookeeper.session import Session

_IN_ONE = 100  # nodes read by one request
_AT_ONCE = 10  # such requests under way for one tree, so that others get their turn

_MULTI_HEADER = Struct(">i?i")  # the operation's type, whether this is the end, an error
_HEAD = Struct(">i?ii")  # the same, then a path's length
_ALONE = b"\0"  # without a watch
_STAT = Struct(">32xi20xi8x")  # of a Stat the node's version, and how many children it has
_INT = Struct(">i")
_NO_ERROR = -1
_FAILED = -1

S = TypeVar("S")
T = TypeVar("T")


class Reader:
    """Reads nodes in a session. Every method raises AccessDenied and StoreUnavailable."""

    def __init__(self, session: Session, prefix: str) -> None:
        """``prefix`` precedes every path: the chroot or an empty string."""
        self._session = session
        self._prefix = prefix

    async def get(self, path: str, watch: Callable[[object], None] | None = None) -> Node | None:
        """Return the node at ``path``; ``watch`` is called when it changes."""
        while True:
            try:
                return _node(*await self._ask("get_async", path, watch))
            except exceptions.NoNodeError:
                if watch is None or not await self._ask("exists_async", path, watch):
                    return None

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Return those of the nodes that exist."""
        found = await self._read(serialization.GetData, wanted)
        return {path: Node(data, version) for path, (data, version, _) in found}

    async def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """Return the sorted children of ``path``; ``watch`` is called when they change."""
        while True:
            try:
                return sorted(await self._ask("get_children_async", path, watch))
            except exceptions.NoNodeError:
                # A missing node can be watched, but not its children.
                if watch is None or not await self._ask("exists_async", path, watch):
                    return []

    async def missing(self, about: Sequence[str]) -> set[str]:
        """Return those of the paths that do not exist."""
        answers = await _in_turn(self._missing_part, _parts(about))
        return {path for part in answers for path in part}

    async def _missing_part(self, about: Sequence[str]) -> list[str]:
        missing = []
        answers = await self._ask_many(serialization.GetData, about)
        for path, answer in zip(about, answers, strict=True):
            if isinstance(answer, exceptions.NoNodeError):
                missing.append(path)
            elif isinstance(answer, exceptions.NoAuthError):  # what may not be read is there
                continue
            elif isinstance(answer, Exception):
                raise _unreadable(path, answer)
        return missing

    async def tree(self, path: str) -> dict[str, Node]:
        """Return the nodes from ``path`` down, read level by level."""
        nodes: dict[str, Node] = {}
        level = [path]
        while level:
            with_children = []
            for at, (data, version, children) in await self._read(serialization.GetData, level):
                nodes[at] = Node(data, version)
                if children:
                    with_children.append(at)
            below = await self._read(serialization.GetChildren, with_children)
            level = [paths.join(parent, name) for parent, names in below for name in names]
        return nodes

    async def _read(self, kind: Any, about: Sequence[str]) -> list[tuple[str, Any]]:
        """Read those of the paths that exist."""
        answers = await _in_turn(partial(self._read_part, kind), _parts(about))
        return [found for part in answers for found in part]

    async def _read_part(self, kind: Any, about: Sequence[str]) -> list[tuple[str, Any]]:
        found = []
        for path, answer in zip(about, await self._ask_many(kind, about), strict=True):
            if isinstance(answer, exceptions.NoAuthError):
                raise AccessDenied(path)
            if isinstance(answer, exceptions.NoNodeError):  # it was deleted meanwhile
                continue
            if isinstance(answer, Exception):
                raise _unreadable(path, answer)
            found.append((path, answer))
        return found

    async def _ask_many(self, kind: Any, about: Sequence[str]) -> list[Any]:
        """Ask with one request; return the answer for each of the paths, or its exception."""
        full = [self._full(path) for path in about]
        answers: list[Any] = await self._session.ask(partial(_multi_read, kind=kind, paths=full))
        return answers

    async def _ask(self, method: str, path: str, *arguments: object) -> Any:
        try:
            return await self._session.ask(methodcaller(method, self._full(path), *arguments))
        except exceptions.NoAuthError:
            raise AccessDenied(path) from None

    def _full(self, path: str) -> str:
        return self._prefix + path if path != paths.ROOT else self._prefix or paths.ROOT


def _unreadable(path: str, answer: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{path} cannot be read: {answer!r}")


def _parts(about: Sequence[str]) -> list[Sequence[str]]:
    """Split paths into those of each request."""
    return [about[start : start + _IN_ONE] for start in range(0, len(about), _IN_ONE)]


def _node(data: bytes | None, stat: Any) -> Node:
    """Build a node; one that another program created may have no data."""
    return Node(data or b"", stat.version)


async def _in_turn(question: Callable[[S], Awaitable[T]], about: Sequence[S]) -> list[T]:
    """Ask about many, a few at a time; return the answers."""
    answers: list[T] = []
    for start in range(0, len(about), _AT_ONCE):
        answers += await asyncio.gather(*map(question, about[start : start + _AT_ONCE]))
    return answers


class MultiRead:
    """A multi-read as a request of kazoo: its type, its bytes, and the decoding of its answer."""

    type = 22

    def __init__(self, kind: Any, paths: Sequence[str]) -> None:
        """``kind``: ``serialization.GetData`` or ``GetChildren``."""
        self._kind = kind
        self._paths = paths

    def serialize(self) -> bytes:
        """Encode the request after its header."""
        parts: list[bytes] = []
        for path in self._paths:
            encoded = path.encode()
            parts += (_HEAD.pack(self._kind.type, False, _NO_ERROR, len(encoded)), encoded, _ALONE)
        return b"".join(parts) + _MULTI_HEADER.pack(-1, True, _NO_ERROR)

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Decode the answer of each path, or its exception."""
        answers: list[Any] = []
        while True:
            kind, is_end, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if is_end:
                return answers
            answer, offset = _answer(kind, data, offset)
            answers.append(answer)


def _answer(kind: int, data: bytes, offset: int) -> tuple[Any, int]:
    if kind == _FAILED:
        (error,) = _INT.unpack_from(data, offset)
        return exceptions.EXCEPTIONS[error](), offset + _INT.size
    if kind == serialization.GetData.type:
        return _data(data, offset)
    return _children(data, offset)


def _data(data: bytes, offset: int) -> tuple[tuple[bytes, int, int], int]:
    """A node's data, its version, and the number of its children."""
    (length,) = _INT.unpack_from(data, offset)
    start = offset + _INT.size
    offset = start + max(length, 0)  # one that another program created may have no data
    return (data[start:offset], *_STAT.unpack_from(data, offset)), offset + _STAT.size


def _children(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    names = []
    for _ in range(count):
        name, offset = serialization.read_string(data, offset)
        names.append(name)
    return names, offset


def _multi_read(client: KazooClient, kind: Any, paths: Sequence[str]) -> Answer:
    """Send a multi-read in the way of kazoo's own methods."""
    answer: Answer = client.handler.async_result()
    client._call(MultiRead(kind, paths), answer)
    return answer
