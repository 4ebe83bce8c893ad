"""Reaching other brokers, wherever they are registered now."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from ..metadata.image import BrokerInfo
from .peer_connection import PeerConnection, PeerFailed
from .settings import FetchSettings

_CONNECT_S = 5.0
"""After a cut, a new attempt finds its way sooner than one that has been waiting ever longer."""


class Registered(Protocol):
    """What is known of the cluster's brokers."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """Those that live, by id."""


class Peers:
    """Opens connections to other brokers."""

    def __init__(self, registered: Registered, settings: FetchSettings) -> None:
        self._registered = registered
        self._settings = settings

    @asynccontextmanager
    async def connect(self, broker_id: int) -> AsyncIterator[PeerConnection]:
        """A connection of one's own, closed in the end. Raises PeerFailed."""
        info = self._registered.brokers.get(broker_id)
        if info is None:
            raise PeerFailed(f"broker {broker_id} is not registered")
        settings = self._settings
        connection = await PeerConnection.open(
            info.host,
            info.port,
            client_id=f"broker-{settings.node_id}-fetcher",
            timeout=min(settings.timeout_s, _CONNECT_S),
            max_frame=settings.max_frame,
            receive_buffer=settings.receive_buffer,
        )
        try:
            yield connection
        finally:
            connection.abort()
