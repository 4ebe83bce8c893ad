"""Asking one leader for records, over and over: one connection, one session.

One request is out at a time. When something is to be asked for while the leader lets that one wait,
a second one goes out, which ends the wait of the first.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState

from .backoff import Backoff
from .counts import Counts
from .partition_fetch_state import error_of
from .peer_connection import PeerConnection, PeerFailed
from .peers import Peers
from .session import FetchSession, Key
from .settings import FetchSettings

_log = logging.getLogger(__name__)

FETCH_VERSION = 17
_FLUSH_PATIENCE_S = 0.005  # those whose flushes end within that are asked for together
_WHILE_FLUSHING_MS = 10  # how long the others' request may then stand in their way
_SLOW_FLUSH_S = 1.0  # nobody waits for one that takes longer
_UNKNOWN_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Take = Callable[[Key, PartitionData], None]


class FetchLoop:
    """Asks for the partitions that it is told to; ``take`` is given each one's answer."""

    def __init__(
        self, leader_id: int, peers: Peers, settings: FetchSettings, counts: Counts, take: Take
    ) -> None:
        """An answer is void once ``take`` returns."""
        self._leader_id = leader_id
        self._peers = peers
        self._settings = settings
        self._counts = counts
        self._take = take
        self._session = FetchSession()
        self._flushing: set[Key] = set()
        self._flush_began = 0.0
        self._backoff = Backoff(settings.backoff_s)
        self._connection: PeerConnection | None = None
        self._outstanding = 0
        self._is_parked = False
        self._wake = asyncio.Event()

    def ask(self, key: Key, partition: FetchPartition) -> None:
        """Ask for a partition as it stands now."""
        self._flushing.discard(key)
        self._session.ask(key, partition)
        self._wake.set()

    def hold(self, key: Key) -> None:
        """Do not ask for a partition while it is flushed, which should not take long."""
        self._session.drop(key)
        self._flushing.add(key)
        self._flush_began = asyncio.get_running_loop().time()
        self._wake.set()

    def drop(self, key: Key) -> None:
        """Do not ask for a partition any more."""
        self._flushing.discard(key)
        self._session.drop(key)
        self._wake.set()

    async def run(self) -> None:
        """Ask until cancelled, whatever fails meanwhile."""
        while True:
            await self._until_wanted()
            try:
                async with self._peers.connect(self._leader_id) as connection:
                    self._begin(connection)
                    await self._fetch_over(connection)
            except PeerFailed as error:
                pause = self._backoff.failed()
                if self._backoff.failures == 1:
                    _log.warning("broker %d cannot be followed: %s", self._leader_id, error)
                else:
                    _log.debug("broker %d: %s; again in %.2f s", self._leader_id, error, pause)
                await asyncio.sleep(pause)
            except Exception:  # noqa: BLE001 - without replication there is no service
                _log.exception("following broker %d failed", self._leader_id)
                await asyncio.sleep(self._backoff.failed())
            finally:
                self._connection = None

    async def _until_wanted(self) -> None:
        while not len(self._session):
            self._wake.clear()
            await self._wake.wait()

    def _begin(self, connection: PeerConnection) -> None:
        connection.on_failure = self._wake.set
        self._connection = connection
        self._outstanding = 0
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
        """Send a request, or wait for a reason to; how long at most, in seconds."""
        if not len(self._session):
            return None
        since_flush = asyncio.get_running_loop().time() - self._flush_began
        is_flushing = bool(self._flushing) and since_flush < _SLOW_FLUSH_S
        if self._outstanding:
            if self._is_parked and self._outstanding == 1 and self._can_interrupt:
                self._send(connection, is_flushing=is_flushing)
            return None
        if is_flushing and since_flush < _FLUSH_PATIENCE_S:
            return _FLUSH_PATIENCE_S - since_flush
        self._send(connection, is_flushing=is_flushing)
        return None

    @property
    def _can_interrupt(self) -> bool:
        return self._session.has_news and self._session.is_established

    def _send(self, connection: PeerConnection, *, is_flushing: bool) -> None:
        settings = self._settings
        asked = self._session.request()
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
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )
        self._outstanding += 1
        self._is_parked = not is_flushing
        self._counts.requests += 1
        timeout = settings.timeout_s + wait_ms / 1000
        answered = partial(self._answered, connection, asked.number)
        connection.send(ApiKey.FETCH, FETCH_VERSION, message, timeout, answered)

    def _answered(self, connection: PeerConnection, number: int, answer: Any) -> None:
        if connection is not self._connection:
            return
        self._outstanding -= 1
        self._wake.set()
        session = self._session
        if isinstance(answer, PeerFailed) or not session.is_of(number):
            return
        code = error_of(answer.error_code)
        if code in _UNKNOWN_SESSION and session.is_established:
            session.restart()
        elif code:
            connection.abort(f"refuses to be followed: {code.name}")
        else:
            self._backoff.succeeded()
            session.answered(answer.session_id)
            for topic in answer.responses:
                for data in topic.partitions:
                    key = (topic.topic_id, data.partition_index)
                    if session.is_current(key, number):
                        self._take(key, data)
