"""The metadata store in ZooKeeper."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

from qbus.metadata import paths
from qbus.metadata.errors import (
    AccessDenied,
    NotEmpty,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    TransactionTooLarge,
)
from qbus.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    Node,
    Op,
    Result,
    SessionState,
    check,
)
from qbus.metadata.znodes import SENSITIVE
from qbus.metadata.zookeeper.address import ZooKeeperAddress
from qbus.metadata.zookeeper.library import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    exceptions,
)
from qbus.metadata.zookeeper.reader import Reader
from qbus.metadata.zookeeper.security import ZooKeeperSecurity
from qbus.metadata.zookeeper.session import Session
from qbus.metadata.zookeeper.transactions import (
    MAX_BYTES,
    Multi,
    Step,
    ancestors,
    encode_acl,
    parents_of,
    plan,
    refusal,
    results,
    send,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 20  # to create parents that others create and delete at the same time


class ZooKeeperStore(MetadataStore):
    """A store below the address's chroot, which is created when missing."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        *,
        session_timeout_s: float = 18.0,
        connection_timeout_s: float | None = None,
        credentials: str | None = None,
        security: ZooKeeperSecurity | None = None,
        protect: bool = False,
    ) -> None:
        """``session_timeout_s``: seconds of silence after which ZooKeeper ends the session.

        ``connection_timeout_s``: seconds that the first connection may take; by default the same.
        ``security``: how connections are encrypted and authenticated; None: what the environment
        says. ``credentials``: in its place, ``user:password`` for ZooKeeper's digest
        authentication. ``protect``: nodes created here can be written only with these credentials;
        all may read those without secrets in them. Raises ConfigError.
        """
        if security is None and credentials is not None:
            security = ZooKeeperSecurity(credentials)
        self._session = Session(
            address,
            session_timeout_s,
            security=security,
            on_state=self._tell,
            timings=self.timings,
        )
        self._timeout_s = connection_timeout_s or session_timeout_s
        acl = [*READ_ACL_UNSAFE, *CREATOR_ALL_ACL] if protect else OPEN_ACL_UNSAFE
        self._acl = encode_acl(acl)
        self._secret_acl = encode_acl(CREATOR_ALL_ACL) if protect else None
        self._prefix = "" if address.chroot == paths.ROOT else address.chroot
        self._reader = Reader(self._session, self._prefix)
        self._watches: set[Callable[[object], None]] = set()
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._is_started = False
        self._is_closing = False
        self._under_way = 0
        self._idle = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """The session's state; SUSPENDED until it is first connected."""
        return self._session.state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` when the state changes."""
        self._callbacks.append(callback)

    def doubt(self) -> None:
        """See :class:`MetadataStore`."""
        self._session.doubt()

    def _tell(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            for fire in list(self._watches):
                fire(state)
        for callback in self._callbacks:
            callback(state)

    async def start(self) -> None:
        """Connect to one of the servers, and create the chroot if needed."""
        if self._is_started:
            raise StoreUnavailable(f"the session with {self._session.address} was already started")
        self._is_started = True
        await self._session.open(self._timeout_s)
        try:
            await self._make_chroot()
            if self._secret_acl is not None:
                await self._protect_secrets()
        except StoreError as error:
            await self.close()
            raise StoreUnusable(f"cannot use {self._session.address}: {error}") from error

    async def close(self) -> None:
        """Wait for requests under way, and end the session, which deletes the ephemeral nodes."""
        self._is_closing = True
        if self._under_way and self.state is SessionState.CONNECTED:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._idle.wait()
        await self._session.close()

    # Reading

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """Return the node at ``path``, or None."""
        paths.check(path)
        with self._working():
            if watch is None:
                return await self._reader.get(path)
            return await self._watched(watch, partial(self._reader.get, path))

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Return those of the nodes that exist."""
        for path in wanted:
            paths.check(path)
        with self._working():
            return await self._reader.get_many(wanted)

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """Return the sorted children of ``path``."""
        paths.check(path)
        with self._working():
            if watch is None:
                return await self._reader.children(path)
            return await self._watched(watch, partial(self._reader.children, path))

    async def tree(self, path: str) -> dict[str, Node]:
        """Return the nodes from ``path`` down."""
        paths.check(path)
        with self._working():
            return await self._reader.tree(path)

    async def _watched(
        self, watch: Callable[[], None], read: Callable[[Callable[[object], None]], Awaitable[T]]
    ) -> T:
        """Read with a watch on changes that come after it."""
        fire = self._watching(watch)
        try:
            return await read(fire)
        except BaseException:
            self._watches.discard(fire)
            raise

    def _watching(self, watch: Callable[[], None]) -> Callable[[object], None]:
        """Return a callback for kazoo that calls ``watch`` once: kazoo may call twice, or never."""

        def fire(_: object) -> None:
            if fire in self._watches:
                self._watches.remove(fire)
                watch()

        self._watches.add(fire)
        return fire

    # Writing

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Send the operations as one request; retry only when it was refused for its parents."""
        wanted = tuple(operations)
        for operation in wanted:
            check(operation)
            if isinstance(operation, Delete) and operation.path == paths.ROOT:
                raise NotEmpty(paths.ROOT)  # ZooKeeper would delete an empty chroot
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
                missing = await self._reader.missing(parents_of(wanted))
        raise error

    async def _send(self, steps: Sequence[Step]) -> list[Any]:
        request = Multi(steps, self._prefix, self._acl, self._secret_acl)
        if request.size > MAX_BYTES:
            raise TransactionTooLarge(
                f"a transaction of {request.size} bytes;"
                f" ZooKeeper takes {MAX_BYTES} (jute.maxbuffer)"
            )
        answers: list[Any] = await self._session.ask(partial(send, request=request))
        return answers

    async def _make_chroot(self) -> None:
        chroot = self._session.address.chroot
        for path in [*reversed(ancestors(chroot)), chroot]:
            try:
                if await self._session.ask(methodcaller("exists_async", path)) is not None:
                    continue
            except exceptions.NoAuthError:
                raise AccessDenied(path) from None
            steps = [Step(Create(path), is_asked_for=True)]
            request = partial(send, request=Multi(steps, "", self._acl))
            refused = refusal(steps, await self._session.ask(request))
            if refused and not isinstance(refused.error, exceptions.NodeExistsError):
                raise refused.as_error()

    async def _protect_secrets(self) -> None:
        """Have only brokers read what has secrets in it and was created when all could read it."""
        for root in SENSITIVE:
            for path in await self._reader.tree(root):
                node = self._prefix + path
                acl, _ = await self._session.ask(methodcaller("get_acls_async", node))
                if any(one.id.scheme == "world" for one in acl):
                    change = methodcaller("set_acls_async", node, CREATOR_ALL_ACL)
                    try:
                        await self._session.ask(change)
                    except exceptions.NoNodeError:
                        continue
                    _log.info("%s: only brokers may read it from now on", path)

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
