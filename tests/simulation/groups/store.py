"""An ensemble and its sessions: writes are ordered, reads may be outdated."""

from asyncio import Future
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from qbus.metadata import (
    MetadataStore,
    Node,
    Op,
    Result,
    SessionState,
    Set,
    StoreUnavailable,
)
from qbus.metadata.database import Database

from .checks import Checks
from .loop import Process, World

SESSION = 4.0  # seconds

T = TypeVar("T")


class Ensemble:
    """The history of the store's content, and the brokers with a session."""

    def __init__(self, world: World, checks: Checks) -> None:
        self.live: dict[int, object] = {}  # the session of each broker
        self.on_live: Callable[[], None] = lambda: None
        self.history: list[dict[str, Node]] = [{}]
        self._database = Database(Path(":memory:"))
        self._world = world
        self._checks = checks

    def close(self) -> None:
        self._database.close()

    @property
    def now(self) -> dict[str, Node]:
        return self.history[-1]

    def write(self, operations: Sequence[Op]) -> list[Result]:
        """Apply a transaction, or raise the reason."""
        self._database.begin()
        try:
            results = self._database.apply(operations)
        finally:
            self._database.commit()
        if any(isinstance(operation, Set) for operation in operations) or len(operations) > 1:
            self.history.append(self._database.tree("/consumers"))
            self._checks.stored(self.history[-2], self.history[-1])
        return results

    def register(self, broker: int, session: object) -> None:
        self.live[broker] = session
        self.on_live()

    def expire(self, broker: int, session: object) -> None:
        if self.live.get(broker) is session:
            del self.live[broker]
            self.on_live()


class Session(MetadataStore):
    """One broker's session: its requests arrive in order while it is connected."""

    def __init__(self, world: World, ensemble: Ensemble, process: Process, broker: int) -> None:
        self._world = world
        self._ensemble = ensemble
        self._process = process
        self._broker = broker
        self._state = SessionState.CONNECTED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._connection = 0
        self._sent: list[tuple[Callable[[], object], Future[object]]] = []
        self._waiting: list[Future[object]] = []
        self._seen = 0
        self._arrives = self._answers = 0.0
        self.has_expired = False
        ensemble.register(broker, self)

    @property
    def state(self) -> SessionState:
        return self._state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    # Faults

    def expire(self) -> None:
        """End the session for its silence."""
        self.has_expired = True
        self._ensemble.expire(self._broker, self)

    def cut(self) -> None:
        """Cut the connection; some of the requests under way are still done."""
        self._connection += 1
        done = self._world.random.randint(0, len(self._sent))
        for work, _ in self._sent[:done]:
            if not self.has_expired:
                _outcome(work)
        self._sent.clear()
        waiting, self._waiting = self._waiting, []
        self._process.do(lambda: self._disconnected(waiting))

    def _disconnected(self, waiting: list[Future[object]]) -> None:
        self._enter(SessionState.SUSPENDED)
        for future in waiting:
            if not future.done():
                future.set_exception(StoreUnavailable("cut"))

    def reconnect(self) -> None:
        """Connect to a server again."""
        ended = self.has_expired
        state = SessionState.LOST if ended else SessionState.CONNECTED
        self._seen = len(self._ensemble.history) - 1  # the session lets the server catch up first
        self._process.do(lambda: self._enter(state))

    def _enter(self, state: SessionState) -> None:
        if state is not self._state and self._state is not SessionState.LOST:
            self._state = state
            for callback in self._callbacks:
                callback(state)

    # Requests

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        return await self._ask(lambda: self._view().get(path))

    async def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        return await self._ask(lambda: {p: n for p, n in self._view().items() if p in wanted})

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        return await self._ask(lambda: _children(self._view(), path))

    async def tree(self, path: str) -> dict[str, Node]:
        def read() -> dict[str, Node]:
            nodes = self._view().items()
            return {at: node for at, node in nodes if at == path or at.startswith(f"{path}/")}

        return await self._ask(read)

    async def transaction(self, operations: Sequence[Op]) -> list[Result]:
        def write() -> list[Result]:
            try:
                return self._ensemble.write(operations)
            finally:
                self._seen = len(self._ensemble.history) - 1

        return await self._ask(write)

    def _view(self) -> dict[str, Node]:
        """Return the view of the server in use, which never goes back."""
        newest = len(self._ensemble.history) - 1
        lag = self._world.random.choice([0, 0, 0, 1, 5, 20])
        self._seen = max(self._seen, newest - lag)
        return self._ensemble.history[self._seen]

    async def _ask(self, work: Callable[[], T]) -> T:
        if self._state is not SessionState.CONNECTED:
            raise StoreUnavailable("not connected")
        future: Future[T] = self._world.loop.create_future()
        self._sent.append((work, future))  # type: ignore[arg-type] # whatever it is
        self._waiting.append(future)  # type: ignore[arg-type]
        self._arrives = max(self._arrives, self._world.loop.now + self._world.delay())
        self._world.loop.call_at(self._arrives, self._arrived, self._connection)
        return await future

    def _arrived(self, connection: int) -> None:
        if connection != self._connection:
            return
        work, future = self._sent.pop(0)
        result = StoreUnavailable("expired") if self.has_expired else _outcome(work)
        self._answers = max(self._answers, self._world.loop.now + self._world.delay())
        self._world.loop.call_at(
            self._answers, self._process.do, lambda: self._answered(connection, future, result)
        )

    def _answered(self, connection: int, future: Future[object], result: object) -> None:
        if connection != self._connection or future.done():
            return
        self._waiting.remove(future)
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except AssertionError:
        raise
    except Exception as error:
        return error


def _children(nodes: dict[str, Node], path: str) -> list[str]:
    start = f"{path}/"
    names = (at.removeprefix(start) for at in nodes if at.startswith(start))
    return sorted(name for name in names if "/" not in name)
