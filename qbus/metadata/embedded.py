"""The embedded store: for the brokers of one machine, in one SQLite file.

One thread owns the file and handles all waiting requests together: each transaction applies or
fails alone, in a savepoint; one commit makes all of them durable (group commit); then all requests
are answered.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from qbus.metadata import paths
from qbus.metadata.database import OWN_SESSION, Database, explain, is_full
from qbus.metadata.errors import StoreUnavailable
from qbus.metadata.store import MetadataStore, Node, Op, Result, SessionState, check

_log = logging.getLogger(__name__)

_BATCH = 1000

T = TypeVar("T")


class _Request(NamedTuple):
    """Work for the thread, and the future of its result.

    ``is_lazy``: nothing needs to be on stable storage when it is answered; so are all reads.
    """

    work: Callable[[Database], Any]
    future: asyncio.Future[Any]
    is_lazy: bool


class _Outcome(NamedTuple):
    """The result of a request."""

    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class _Worker:
    """The thread that owns the database. ``opened`` resolves when it is open, or has the error."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[list[_Outcome], Iterable[str], bool], None],
    ) -> None:
        """``deliver`` gets outcomes, changed nodes, and whether the file failed, in the loop."""
        self._path = path
        self._loop = loop
        self._deliver = deliver
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        # A daemon thread: a process that exits without closing the store counts as a crash.
        self._thread = threading.Thread(target=self._run, name="metadata-store", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Database], T], *, lazily: bool = False) -> asyncio.Future[T]:
        """Do ``work`` in the thread, after everything submitted before."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Request(work, future, lazily))
        return future

    async def close(self) -> None:
        """Wait until everything submitted is done and the file is closed."""
        self._queue.put(None)
        await self.closed
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        try:
            database = Database(self._path)
        except BaseException as error:  # noqa: BLE001 - the outcome of the start
            self._tell([_Outcome(self.opened, None, error), _Outcome(self.closed, None, None)])
            return
        self._tell([_Outcome(self.opened, None, None)])
        failure: StoreUnavailable | None = None
        while batch := self._next_batch():
            if failure is None:
                failure = self._serve(database, batch)
            else:
                self._tell([_Outcome(request.future, None, failure) for request in batch])
        database.close()
        self._tell([_Outcome(self.closed, None, None)])

    def _next_batch(self) -> list[_Request]:
        """Take the waiting requests, at least one; none at the end."""
        batch = []
        request = self._queue.get()
        while request is not None:
            batch.append(request)
            if len(batch) == _BATCH:
                return batch
            try:
                request = self._queue.get_nowait()
            except Empty:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _serve(self, database: Database, batch: list[_Request]) -> StoreUnavailable | None:
        """Do a batch in one commit; return an error if the file became unusable."""
        failure = None
        try:
            database.begin(lazily=all(request.is_lazy for request in batch))
            outcomes = [_attempt(database, request) for request in batch]
            database.commit()
        except sqlite3.Error as error:
            reason = StoreUnavailable(f"the metadata store {self._path} failed: {explain(error)}")
            if not (is_full(error) and database.rollback()):
                failure = reason
            elif len(batch) > 1:
                return self._serve_singly(database, batch)
            outcomes = [_Outcome(request.future, None, reason) for request in batch]
        touched, database.touched = database.touched, set()
        self._tell(outcomes, touched, broken=failure is not None)
        return failure

    def _serve_singly(self, database: Database, batch: list[_Request]) -> StoreUnavailable | None:
        """Commit each request alone, so that only what does not fit on the disk fails."""
        for number, request in enumerate(batch, 1):
            failure = self._serve(database, [request])
            if failure is not None:
                self._tell([_Outcome(rest.future, None, failure) for rest in batch[number:]])
                return failure
        return None

    def _tell(
        self, outcomes: list[_Outcome], touched: Iterable[str] = (), *, broken: bool = False
    ) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, outcomes, touched, broken)
        except RuntimeError:  # the loop is closed
            _log.debug(
                "%d answers of the metadata store came after the end of the loop", len(outcomes)
            )


def _attempt(database: Database, request: _Request) -> _Outcome:
    """Do one request; its errors are its outcome, except those of the file."""
    try:
        return _Outcome(request.future, request.work(database), None)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - the outcome of the request
        return _Outcome(request.future, None, error)


class EmbeddedStore(MetadataStore):
    """A store in the file ``path``, which is created when missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._watches: dict[str, list[Callable[[], None]]] = {}
        self._worker: _Worker | None = None  # from start() on

    @property
    def state(self) -> SessionState:
        """CONNECTED from start to close, unless the file fails."""
        return self._state

    @property
    def is_shared(self) -> bool:
        """It is this process's alone."""
        return False

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call ``callback`` when the state changes."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Open the file in a thread of its own."""
        if self._worker is not None:
            raise StoreUnavailable(f"{self.path} was opened already")
        self._worker = _Worker(self.path, asyncio.get_running_loop(), self._deliver)
        try:
            await self._worker.opened
        except StoreUnavailable:
            self._enter(SessionState.LOST)
            raise
        self._enter(SessionState.CONNECTED)

    async def close(self) -> None:
        """Finish waiting requests, delete the ephemeral nodes, and close the file."""
        if self._worker is None:
            return
        if self._state is not SessionState.LOST:
            ended = self._submit(partial(Database.end_session, session=OWN_SESSION))
            self._enter(SessionState.LOST)
            try:
                await ended
            except StoreUnavailable as error:
                _log.warning("closing the metadata store: %s", error)
        await self._worker.close()

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """The node at ``path``."""
        paths.check(path)
        return await self._submit(lambda database: database.get(path), path, watch, lazily=True)

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Those of the nodes that there are."""
        for path in wanted:
            paths.check(path)
        return await self._submit(lambda database: database.get_many(wanted), lazily=True)

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        """The names below ``path``."""
        paths.check(path)
        return await self._submit(
            lambda database: database.children(path), path, watch, lazily=True
        )

    async def tree(self, path: str) -> dict[str, Node]:
        """The nodes from ``path`` down."""
        paths.check(path)
        return await self._submit(lambda database: database.tree(path), lazily=True)

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply the operations together."""
        return await self.transaction_of(OWN_SESSION, operations)

    async def transaction_of(self, session: int, operations: Sequence[Op]) -> list[Result]:
        """The same for another session in the file, whose ephemeral nodes they create."""
        return await self._apply(session, operations)

    async def lazy_transaction(self, operations: Sequence[Op]) -> list[Result]:
        """Apply the operations together; they are in the system's cache then, not on the disk."""
        return await self.lazy_transaction_of(OWN_SESSION, operations)

    async def lazy_transaction_of(self, session: int, operations: Sequence[Op]) -> list[Result]:
        """The same for another session in the file."""
        return await self._apply(session, operations, lazily=True)

    def _apply(
        self, session: int, operations: Sequence[Op], *, lazily: bool = False
    ) -> asyncio.Future[list[Result]]:
        wanted = tuple(operations)
        for operation in wanted:
            check(operation)  # here, because an error of SQLite would fail the whole batch
        return self._submit(lambda database: database.apply(wanted, session), lazily=lazily)

    async def end_session(self, session: int) -> None:
        """Delete the ephemeral nodes of another session. Raises StoreUnavailable."""
        await self._submit(partial(Database.end_session, session=session))

    def _submit(
        self,
        work: Callable[[Database], T],
        path: str = "",
        watch: Callable[[], None] | None = None,
        *,
        lazily: bool = False,
    ) -> asyncio.Future[T]:
        """Submit ``work``; ``watch`` is called when ``path`` or its children change afterwards."""
        if self._worker is None or self._state is not SessionState.CONNECTED:
            raise StoreUnavailable(f"the metadata store {self.path} is not open")
        future = self._worker.submit(work, lazily=lazily)
        started = perf_counter()
        future.add_done_callback(lambda _: self.timings.observe(perf_counter() - started))
        if watch is not None:
            self._watches.setdefault(path, []).append(watch)
        return future

    def _deliver(self, outcomes: list[_Outcome], touched: Iterable[str], broken: bool) -> None:
        for future, result, error in outcomes:
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        for path in touched:
            for watch in self._watches.pop(path, ()):
                watch()
        if broken:
            self._enter(SessionState.LOST)

    def _enter(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is SessionState.LOST:
            watches, self._watches = self._watches, {}
            for watch in (watch for some in watches.values() for watch in some):
                watch()
        for callback in self._callbacks:
            callback(state)
