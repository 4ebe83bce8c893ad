"""The fetch loop of one leader: one connection, one fetch session.

One request is in flight at a time. If a partition is added or changed while the leader holds that
request, the loop sends a second one, and the leader answers the first at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self

from qbus.config import BrokerConfig
from qbus.errors import ErrorCode
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState

from ..peers.client import PeerClient
from ..peers.connection import PeerConnection, PeerError
from .metrics import FetchMetrics
from .partition_fetch_state import error_of
from .session import FetchSession, Key

_log = logging.getLogger(__name__)

FETCH_VERSION = 17
_FLUSH_PATIENCE_S = 0.005  # partitions whose flushes end within this time share a request
_WHILE_FLUSHING_MS = 10  # how long the leader may hold a request while a flush is under way
_SLOW_FLUSH_S = 1.0  # a flush that takes longer no longer shortens that
_UNKNOWN_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

OnData = Callable[[Key, PartitionData], None]


class FetchSettings(NamedTuple):
    """The configuration of fetching. Times are in seconds, sizes in bytes."""

    node_id: int
    broker_epoch: int
    wait_s: float
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_s: float
    timeout_s: float

    @classmethod
    def of(cls, config: BrokerConfig, node_id: int, broker_epoch: int) -> Self:
        """The settings of a broker; ``broker_epoch`` is that of its registration (KIP-903)."""
        return cls(
            node_id=node_id,
            broker_epoch=broker_epoch,
            wait_s=config.replica_fetch_wait_max_ms / 1000,
            min_bytes=config.replica_fetch_min_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_s=config.replica_fetch_backoff_ms / 1000,
            timeout_s=config.replica_socket_timeout_ms / 1000,
        )


class FetchLoop:
    """Fetches the partitions added to it; ``on_data`` is called with each one's response."""

    def __init__(
        self,
        leader_id: int,
        peers: PeerClient,
        settings: FetchSettings,
        metrics: FetchMetrics,
        on_data: OnData,
    ) -> None:
        """A response is valid until ``on_data`` returns."""
        self._leader_id = leader_id
        self._peers = peers
        self._settings = settings
        self._metrics = metrics
        self._on_data = on_data
        self._session = FetchSession()
        self._flushing: set[Key] = set()
        self._flush_began = 0.0
        self._backoff = Backoff(longest_s=settings.backoff_s)
        self._connection: PeerConnection | None = None
        self._in_flight = 0
        self._is_held = False
        self._wake = asyncio.Event()

    def add(self, key: Key, partition: FetchPartition) -> None:
        """Fetch a partition from the offset in ``partition`` on."""
        self._flushing.discard(key)
        self._session.add(key, partition)
        self._wake.set()

    def pause_for_flush(self, key: Key) -> None:
        """Do not fetch a partition until it is flushed and added again."""
        self._session.remove(key)
        self._flushing.add(key)
        self._flush_began = asyncio.get_running_loop().time()
        self._wake.set()

    def remove(self, key: Key) -> None:
        """Do not fetch a partition any more."""
        self._flushing.discard(key)
        self._session.remove(key)
        self._wake.set()

    async def run(self) -> None:
        """Fetch until cancelled; failures are retried after a pause."""
        while True:
            await self._until_not_empty()
            try:
                async with self._peers.connect(self._leader_id) as connection:
                    self._begin(connection)
                    await self._fetch_over(connection)
            except PeerError as error:
                pause = self._backoff.failed()
                if self._backoff.failures == 1:
                    _log.warning("cannot fetch from broker %d: %s", self._leader_id, error)
                else:
                    _log.debug(
                        "cannot fetch from broker %d: %s; next attempt in %.2f s",
                        self._leader_id,
                        error,
                        pause,
                    )
                await asyncio.sleep(pause)
            except Exception:  # noqa: BLE001 - replication must go on
                _log.exception("unexpected error while fetching from broker %d", self._leader_id)
                await asyncio.sleep(self._backoff.failed())
            finally:
                self._connection = None

    async def _until_not_empty(self) -> None:
        while not len(self._session):
            self._wake.clear()
            await self._wake.wait()

    def _begin(self, connection: PeerConnection) -> None:
        connection.on_failure = self._wake.set
        self._connection = connection
        self._in_flight = 0
        self._session.restart()

    async def _fetch_over(self, connection: PeerConnection) -> None:
        while connection.failure is None:
            self._wake.clear()
            pause = self._send_if_due(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
        raise connection.failure

    def _send_if_due(self, connection: PeerConnection) -> float | None:
        """Send a request if there is reason to; return the longest wait after it, in seconds."""
        if not len(self._session):
            return None
        since_flush = asyncio.get_running_loop().time() - self._flush_began
        is_flushing = bool(self._flushing) and since_flush < _SLOW_FLUSH_S
        if self._in_flight:
            if self._is_held and self._in_flight == 1 and self._can_interrupt:
                self._send(connection, is_flushing=is_flushing)
            return None
        if is_flushing and since_flush < _FLUSH_PATIENCE_S:
            return _FLUSH_PATIENCE_S - since_flush
        self._send(connection, is_flushing=is_flushing)
        return None

    @property
    def _can_interrupt(self) -> bool:
        return self._session.has_changes and self._session.is_established

    def _send(self, connection: PeerConnection, *, is_flushing: bool) -> None:
        settings = self._settings
        request = self._session.next_request()
        wait_ms = int(settings.wait_s * 1000)
        if is_flushing:
            wait_ms = min(wait_ms, _WHILE_FLUSHING_MS)
        message = FetchRequest(
            replica_state=ReplicaState(
                replica_id=settings.node_id, replica_epoch=settings.broker_epoch
            ),
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten_topics_data=request.forgotten,
        )
        self._in_flight += 1
        self._is_held = not is_flushing
        self._metrics.requests += 1
        timeout = settings.timeout_s + wait_ms / 1000
        on_response = partial(self._handle_response, connection, request.number)
        connection.send(ApiKey.FETCH, FETCH_VERSION, message, timeout, on_response)

    def _handle_response(self, connection: PeerConnection, number: int, response: Any) -> None:
        if connection is not self._connection:
            return
        self._in_flight -= 1
        self._wake.set()
        session = self._session
        if isinstance(response, PeerError) or not session.is_of_session(number):
            return
        code = error_of(response.error_code)
        if code in _UNKNOWN_SESSION and session.is_established:
            session.restart()
        elif code:
            connection.abort(f"the leader refused the fetch: {code.name}")
        else:
            self._backoff.succeeded()
            session.answered(response.session_id)
            for topic in response.responses:
                for data in topic.partitions:
                    key = (topic.topic_id, data.partition_index)
                    if session.is_current(key, number):
                        self._on_data(key, data)
