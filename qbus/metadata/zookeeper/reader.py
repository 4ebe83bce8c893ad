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
_AT_ONCE = 10  # such requests under way for one tree; others get their turn in between

_MULTI_HEADER = Struct(">i?i")  # the operation's type, whether this is the end, an error
_INT = Struct(">i")
_NO_ERROR = -1
_FAILED = -1

S = TypeVar("S")
T = TypeVar("T")


class Reader:
    """What a session can read. Every method raises AccessDenied and StoreUnavailable."""

    def __init__(self, session: Session, prefix: str) -> None:
        """``prefix`` goes before every path: the chroot, or nothing."""
        self._session = session
        self._prefix = prefix

    async def get(self, path: str, watch: Callable[[object], None] | None = None) -> Node | None:
        """The node at ``path``; ``watch`` is called when it changes."""
        while True:
            try:
                return _node(*await self._ask("get_async", path, watch))
            except exceptions.NoNodeError:
                if watch is None or not await self._ask("exists_async", path, watch):
                    return None

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Those of the nodes that there are."""
        found = await self._read(serialization.GetData, wanted)
        return {path: _node(data, stat) for path, (data, stat) in found}

    async def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """The sorted names below ``path``; ``watch`` is called when they change."""
        while True:
            try:
                return sorted(await self._ask("get_children_async", path, watch))
            except exceptions.NoNodeError:
                # What is not there can be watched itself, but not its children.
                if watch is None or not await self._ask("exists_async", path, watch):
                    return []

    async def missing(self, about: Sequence[str]) -> set[str]:
        """Those of the paths at which there is nothing."""
        found = await _in_turn(partial(self._ask, "exists_async"), about)
        return {path for path, stat in zip(about, found, strict=True) if stat is None}

    async def tree(self, path: str) -> dict[str, Node]:
        """The nodes from ``path`` down, read level by level."""
        nodes: dict[str, Node] = {}
        level = [path]
        while level:
            with_children = []
            for at, (data, stat) in await self._read(serialization.GetData, level):
                nodes[at] = _node(data, stat)
                if stat.numChildren:
                    with_children.append(at)
            below = await self._read(serialization.GetChildren, with_children)
            level = [paths.join(parent, name) for parent, names in below for name in names]
        return nodes

    async def _read(self, kind: Any, about: Sequence[str]) -> list[tuple[str, Any]]:
        """Those of the paths that are there, each with what is known of it."""
        parts = [about[start : start + _IN_ONE] for start in range(0, len(about), _IN_ONE)]
        answers = await _in_turn(partial(self._read_part, kind), parts)
        return [found for part in answers for found in part]

    async def _read_part(self, kind: Any, about: Sequence[str]) -> list[tuple[str, Any]]:
        full = [self._full(path) for path in about]
        answers = await self._session.ask(partial(_multi_read, kind=kind, paths=full))
        found = []
        for path, answer in zip(about, answers, strict=True):
            if isinstance(answer, exceptions.NoAuthError):
                raise AccessDenied(path)
            if isinstance(answer, exceptions.NoNodeError):  # it went away meanwhile
                continue
            if isinstance(answer, Exception):
                raise StoreUnavailable(f"{path} cannot be read: {answer!r}")
            found.append((path, answer))
        return found

    async def _ask(self, method: str, path: str, *arguments: object) -> Any:
        try:
            return await self._session.ask(methodcaller(method, self._full(path), *arguments))
        except exceptions.NoAuthError:
            raise AccessDenied(path) from None

    def _full(self, path: str) -> str:
        return self._prefix + path if path != paths.ROOT else self._prefix or paths.ROOT


def _node(data: bytes | None, stat: Any) -> Node:
    """Data may be missing where somebody else created the node."""
    return Node(data or b"", stat.version)


async def _in_turn(question: Callable[[S], Awaitable[T]], about: Sequence[S]) -> list[T]:
    """The answers to a question about many, some of which are under way at a time."""
    answers: list[T] = []
    for start in range(0, len(about), _AT_ONCE):
        answers += await asyncio.gather(*map(question, about[start : start + _AT_ONCE]))
    return answers


class MultiRead:
    """kazoo's view of such a request: its number, its bytes, and what the answer's bytes mean."""

    type = 22

    def __init__(self, kind: Any, paths: Sequence[str]) -> None:
        """``kind``: ``serialization.GetData`` or ``GetChildren``."""
        self._kind = kind
        self._paths = paths

    def serialize(self) -> bytes:
        """The request, after its number."""
        head = _MULTI_HEADER.pack(self._kind.type, False, _NO_ERROR)
        operations = [head + bytes(self._kind(path, None).serialize()) for path in self._paths]
        return b"".join(operations) + _MULTI_HEADER.pack(-1, True, _NO_ERROR)

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Of each path what kazoo has for it, or its exception."""
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


def _data(data: bytes, offset: int) -> tuple[Any, int]:
    value, offset = serialization.read_buffer(data, offset)
    stat = serialization.ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
    return (value, stat), offset + serialization.stat_struct.size


def _children(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    names = []
    for _ in range(count):
        name, offset = serialization.read_string(data, offset)
        names.append(name)
    return names, offset


def _multi_read(client: KazooClient, kind: Any, paths: Sequence[str]) -> Answer:
    """Send a multi-read as kazoo's own methods send theirs."""
    answer: Answer = client.handler.async_result()
    client._call(MultiRead(kind, paths), answer)
    return answer
