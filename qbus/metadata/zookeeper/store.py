"""The metadata store in ZooKeeper."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

from .. import paths
from ..errors import (
    AccessDenied,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    TransactionTooLarge,
)
from ..operations import Create, Node, Op, Result, check
from ..store import MetadataStore, SessionState
from .address import ZooKeeperAddress
from .library import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, exceptions
from .plan import MAX_BYTES, Step, ancestors, parents_of, plan, size
from .requests import acl_size, refusal, results, send
from .session import Session

T = TypeVar("T")

_ATTEMPTS = 20  # to create parents that others create and delete at the same time
_AT_ONCE = 500  # reads under way for one tree; others get their turn in between


class ZooKeeperStore(MetadataStore):
    """The nodes below the address's chroot, which is created when missing."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        *,
        session_timeout_s: float = 18.0,
        connection_timeout_s: float | None = None,
        credentials: str | None = None,
        protect: bool = False,
    ) -> None:
        """``session_timeout_s``: how long ZooKeeper keeps a session whose store is silent.

        ``connection_timeout_s``: how long the first connection may take; by default the same.
        ``credentials``: ``user:password`` for ZooKeeper's digest authentication. ``protect``: let
        everybody read what is created here, and only these credentials write it.
        """
        self._session = Session(
            address, session_timeout_s, credentials=credentials, on_state=self._tell
        )
        self._patience = connection_timeout_s or session_timeout_s
        self._acl = [*READ_ACL_UNSAFE, *CREATOR_ALL_ACL] if protect else OPEN_ACL_UNSAFE
        self._acl_size = acl_size(self._acl)
        self._prefix = "" if address.chroot == paths.ROOT else address.chroot
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._is_started = False
        self._is_closing = False
        self._under_way = 0
        self._idle = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """SUSPENDED until there is a connection and while there is none."""
        return self._session.state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call back when the state changes."""
        self._callbacks.append(callback)

    def _tell(self, state: SessionState) -> None:
        for callback in self._callbacks:
            callback(state)

    async def start(self) -> None:
        """Connect to one of the servers, and make sure of the chroot."""
        if self._is_started:
            raise StoreUnavailable(f"the session with {self._session.address} was begun already")
        self._is_started = True
        await self._session.open(self._patience)
        try:
            await self._make_chroot()
        except StoreError as error:
            await self.close()
            raise StoreUnusable(f"cannot use {self._session.address}: {error}") from error

    async def close(self) -> None:
        """Wait for what is under way, and end the session, which deletes the ephemeral nodes."""
        self._is_closing = True
        if self._under_way and self.state is SessionState.CONNECTED:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await self._idle.wait()
        await self._session.close()

    # Reading

    async def get(self, path: str) -> Node | None:
        """The node at ``path``."""
        paths.check(path)
        with self._working():
            found = await self._read(path)
        return found[0] if found else None

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The names below ``path``."""
        paths.check(path)
        with self._working():
            return sorted(await self._names(path, watch and _once(watch)))

    async def tree(self, path: str) -> dict[str, Node]:
        """The nodes from ``path`` down, level by level."""
        paths.check(path)
        nodes: dict[str, Node] = {}
        level = [path]
        with self._working():
            while level:
                with_children = []
                for at, found in zip(level, await _in_turn(self._read, level), strict=True):
                    if found is not None:
                        nodes[at], count = found
                        if count:
                            with_children.append(at)
                names = await _in_turn(self._names, with_children)
                level = [
                    paths.join(parent, name)
                    for parent, below in zip(with_children, names, strict=True)
                    for name in below
                ]
        return nodes

    async def _read(self, path: str) -> tuple[Node, int] | None:
        """A node, and how many children it has."""
        try:
            data, stat = await self._ask("get_async", path)
        except exceptions.NoNodeError:
            return None
        return Node(data, stat.version), stat.numChildren

    async def _names(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        while True:
            try:
                names: list[str] = await self._ask("get_children_async", path, watch)
            except exceptions.NoNodeError:
                # What is not there can be watched itself, but not its children.
                if watch is None or not await self._ask("exists_async", path, watch):
                    return []
            else:
                return names

    async def _ask(self, method: str, path: str, *arguments: object) -> Any:
        try:
            return await self._session.ask(methodcaller(method, self._full(path), *arguments))
        except exceptions.NoAuthError:
            raise AccessDenied(path) from None

    # Writing

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Send the operations as one request, again only when it was refused for its parents."""
        wanted = tuple(operations)
        for operation in wanted:
            check(operation)
        missing: set[str] = set()
        with self._working():
            for _ in range(_ATTEMPTS):
                steps = plan(wanted, missing)
                answers = await self._send(steps)
                refused = refusal(steps, answers)
                if refused is None:
                    return results(steps, answers, self._prefix)
                error = refused.as_error()
                if not refused.is_about_parents:
                    break
                parents = parents_of(wanted)
                found = await _in_turn(self._exists, parents)
                missing = {path for path, there in zip(parents, found, strict=True) if not there}
        raise error

    async def _send(self, steps: Sequence[Step]) -> list[Any]:
        needed = size(steps, len(self._prefix.encode()), self._acl_size)
        if needed > MAX_BYTES:
            raise TransactionTooLarge(
                f"a transaction of {needed} bytes; ZooKeeper takes {MAX_BYTES} (jute.maxbuffer)"
            )
        request = partial(send, steps=steps, prefix=self._prefix, acl=self._acl)
        answers: list[Any] = await self._session.ask(request)
        return answers

    async def _exists(self, path: str) -> bool:
        return await self._ask("exists_async", path) is not None

    async def _make_chroot(self) -> None:
        chroot = self._session.address.chroot
        for path in [*reversed(ancestors(chroot)), chroot]:
            try:
                if await self._session.ask(methodcaller("exists_async", path)) is not None:
                    continue
            except exceptions.NoAuthError:
                raise AccessDenied(path) from None
            steps = [Step(Create(path), is_asked_for=True)]
            request = partial(send, steps=steps, prefix="", acl=self._acl)
            refused = refusal(steps, await self._session.ask(request))
            if refused and not isinstance(refused.error, exceptions.NodeExistsError):
                raise refused.as_error()

    # Both

    @contextmanager
    def _working(self) -> Iterator[None]:
        if self._is_closing:
            raise StoreUnavailable(f"the session with {self._session.address} was ended")
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def _full(self, path: str) -> str:
        return self._prefix + path if path != paths.ROOT else self._prefix or paths.ROOT


def _once(watch: Callable[[], None]) -> Callable[[object], None]:
    """What kazoo calls with an event, and perhaps for two reasons."""
    waiting = [watch]

    def fire(_: object) -> None:
        if waiting:
            waiting.pop()()

    return fire


async def _in_turn(ask: Callable[[str], Awaitable[T]], about: Sequence[str]) -> list[T]:
    """The answers about many paths, some hundred of which are under way at a time."""
    answers: list[T] = []
    for start in range(0, len(about), _AT_ONCE):
        answers += await asyncio.gather(*map(ask, about[start : start + _AT_ONCE]))
    return answers
