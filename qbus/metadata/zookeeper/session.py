"""A session with ZooKeeper: connected, suspended, lost; and requests while it is connected."""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from qbus.metadata.errors import StoreUnavailable, StoreUnusable
from qbus.metadata.store import SessionState, Timings
from qbus.metadata.zookeeper.address import ZooKeeperAddress
from qbus.metadata.zookeeper.handler import Answer, LoopHandler
from qbus.metadata.zookeeper.library import KazooClient, KazooRetry, KazooState, exceptions
from qbus.metadata.zookeeper.security import ZooKeeperSecurity
from qbus.service.event_loop import ticks_of

_log = logging.getLogger(__name__)

# Kazoo warns about every attempt to connect; the session logs only its states. At the level of
# debugging it writes each request and response, with passwords and credentials in them: never here.
_attempts = logging.getLogger(f"{__name__}.attempts")
_attempts.addFilter(
    lambda record: (
        record.levelno >= logging.ERROR
        or (record.levelno > logging.DEBUG and _attempts.isEnabledFor(logging.DEBUG))
    )
)

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.4}
_LEAST_CONNECT_TIMEOUT = 1.0  # seconds; less would exclude slow servers
_PATIENCE = 1 / 3  # of the session time-out: see LoopHandler

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class Session:
    """A session, from :meth:`open` until it is closed or ZooKeeper ends it.

    It outlives connections. While it looks for another server, it is suspended and takes no
    requests. Requests under way fail with StoreUnavailable, because their outcome is unknown; none
    is ever sent twice. Only ZooKeeper ends a session; then it is lost for good.

    It lives as long as the event loop moves. While the loop stands still, nothing is sent, so that
    ZooKeeper ends the session when that lasts longer than the session time-out.
    """

    def __init__(
        self,
        address: ZooKeeperAddress,
        timeout: float,
        *,
        security: ZooKeeperSecurity | None = None,
        on_state: Callable[[SessionState], None] = lambda _: None,
        timings: Timings | None = None,
    ) -> None:
        """``timeout``: seconds of silence after which ZooKeeper ends the session.

        ``security``: None: what the environment says. ``on_state`` is called from the event loop.
        ``timings`` receives the durations of requests. Raises ConfigError.
        """
        self.address = address
        self.state = SessionState.SUSPENDED
        self._timeout = timeout
        self._security = security or ZooKeeperSecurity.from_environment()
        self._on_state = on_state
        self._timings = timings or Timings()
        self._client: KazooClient = None  # from open() on
        self._stopping: asyncio.Future[None] | None = None
        # Kazoo begins a new session when one has expired. The lock and the last state heard by its
        # thread keep requests out of that one.
        self._lock = threading.Lock()
        self._heard = SessionState.SUSPENDED
        self._is_open = False
        self._doubts = 0

    async def open(self, timeout: float) -> None:
        """Connect to one of the servers, within ``timeout`` seconds.

        Raises:
            StoreUnusable: no server answers in time, or none accepts the credentials.
        """
        loop = asyncio.get_running_loop()
        # A dead connection is noticed after two thirds of the session time-out.
        each = max(self._timeout / 3 / len(self.address.servers), _LEAST_CONNECT_TIMEOUT)
        security = self._security
        handler = LoopHandler(
            loop,
            each,
            security.tls,
            ticks=ticks_of(loop),
            patience_s=self._timeout * _PATIENCE,
        )
        opened: asyncio.Future[None] = loop.create_future()
        self._client = client = KazooClient(
            self.address.hosts,
            timeout=self._timeout,
            handler=handler,
            auth_data=[("digest", security.digest)] if security.digest else None,
            use_ssl=security.uses_tls,
            connection_retry=KazooRetry(**_RECONNECT),
            logger=_attempts,
        )
        client.add_listener(partial(self._changed, handler, opened))
        client.start_async()
        try:
            async with asyncio.timeout(timeout):
                await opened
        except TimeoutError:
            await self.close()
            why = f" (TLS: {handler.tls_failure})" if handler.tls_failure else ""
            raise StoreUnusable(f"no ZooKeeper answers at {self.address}{why}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish requests under way, and end the session."""
        if self._client is None:
            return
        await asyncio.shield(self._begin_to_stop())
        self._enter(SessionState.LOST)

    def doubt(self) -> None:
        """Be suspended until ZooKeeper has answered a request of the session."""
        with self._lock:
            if self._heard is not SessionState.CONNECTED or not self._is_open:
                return  # it is in doubt already
            self._is_open = False
            answered = self._client.sync_async(self.address.chroot).future
        self._doubts += 1
        answered.add_done_callback(partial(self._answered, self._doubts))
        self._enter(SessionState.SUSPENDED)

    def _answered(self, doubt: int, answered: asyncio.Future[Any]) -> None:
        """Be connected, if the session lives: else kazoo hears of its end, or connects again."""
        error = None if answered.cancelled() else answered.exception()
        with self._lock:
            lives = not answered.cancelled() and (error is None or isinstance(error, _REFUSALS))
            if not lives or doubt != self._doubts or self._heard is not SessionState.CONNECTED:
                return
            self._is_open = True
        self._enter(SessionState.CONNECTED)

    async def ask(self, request: Callable[[KazooClient], Answer]) -> Any:
        """Send a request after all earlier ones; return its answer.

        Raises:
            StoreUnavailable: there was no answer; whether the request was done is unknown.
            ZookeeperError: the request was refused.
        """
        answer = self._submit(request)
        started = perf_counter()
        try:
            return await answer
        except _REFUSALS:
            raise
        except Exception as error:  # kazoo raises anything, for example for a garbled answer
            raise StoreUnavailable(
                f"ZooKeeper at {self.address} did not answer ({error!r}):"
                " whether the request was done is unknown"
            ) from error
        finally:
            self._timings.observe(perf_counter() - started)

    def _submit(self, request: Callable[[KazooClient], Answer]) -> asyncio.Future[Any]:
        with self._lock:
            if self._client is None or not self._is_open:
                why = "the session has ended" if self._is_over else "not connected"
                raise StoreUnavailable(f"ZooKeeper at {self.address}: {why}")
            return request(self._client).future

    # In kazoo's thread

    def _changed(
        self, handler: LoopHandler, opened: asyncio.Future[None], kazoos: KazooState
    ) -> None:
        state = _STATES[kazoos]
        if state is SessionState.CONNECTED:
            handler.connected()
        with self._lock:
            if self._heard is SessionState.LOST:
                return
            self._heard = state
            self._is_open = False
        handler.inbox.put(partial(self._arrived, opened, state))

    # In the event loop

    def _arrived(self, opened: asyncio.Future[None], state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self._resume():
            return
        self._enter(state)
        if state is SessionState.LOST:
            self._begin_to_stop()
        if not opened.done():
            if state is SessionState.CONNECTED:
                opened.set_result(None)
            else:
                why = f"ZooKeeper at {self.address} ends the session at once"
                opened.set_exception(StoreUnusable(why))

    def _resume(self) -> bool:
        """Accept requests; return whether the connection still exists."""
        with self._lock:
            if self._heard is not SessionState.CONNECTED:
                return False  # that state is on its way
            # This server may lag behind the former one: let it catch up before any request.
            caught_up = self._client.sync_async(self.address.chroot).future
            caught_up.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._is_open = True
        return True

    @property
    def _is_over(self) -> bool:
        return self.state is SessionState.LOST

    def _enter(self, state: SessionState) -> None:
        if state is not self.state and not self._is_over:
            _log.log(_LEVELS[state], "ZooKeeper at %s: %s", self.address, state.value)
            self.state = state
            self._on_state(state)

    def _begin_to_stop(self) -> asyncio.Future[None]:
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(asyncio.to_thread(self._stop))
        return self._stopping

    # In a thread that may wait

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001 - the session is over in any case
            _log.warning("ending the session with ZooKeeper at %s failed: %s", self.address, error)


_REFUSALS = (
    exceptions.NoNodeError,
    exceptions.NodeExistsError,
    exceptions.BadVersionError,
    exceptions.NotEmptyError,
    exceptions.NoChildrenForEphemeralsError,
    exceptions.NoAuthError,
    exceptions.InvalidACLError,
    exceptions.BadArgumentsError,
)

_LEVELS = {
    SessionState.CONNECTED: logging.INFO,
    SessionState.SUSPENDED: logging.WARNING,
    SessionState.LOST: logging.INFO,  # expected when closing; the store's user logs otherwise
}
