"""The way to the right broker: any of them, a partition's leader, a group's coordinator."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

from .addresses import parse_bootstrap
from .connection import Connection
from .errors import ConnectionFailed, check
from .metadata import ClusterMetadata, Endpoint
from .retry import backoff

T = TypeVar("T")

_GROUP_COORDINATOR = 0


class Lane(Enum):
    """What a connection is for.

    A broker answers a connection's requests one after another, so those that wait (a long poll, a
    rebalance) have connections of their own.
    """

    MAIN = "main"
    FETCH = "fetch"
    GROUP = "group"


class Cluster:
    """Connections to the brokers of one cluster, and what is known of it.

    Times are in seconds. Every method that asks a broker raises
    :class:`~qbus.errors.ApiError`, or :class:`~qbus.errors.WireError` for an answer that is none.
    """

    def __init__(self, bootstrap: str, client_id: str, request_timeout: float) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self.request_timeout = request_timeout
        self.metadata = ClusterMetadata()
        self._connections: dict[tuple[str, int, Lane], Connection] = {}
        self._opening: dict[tuple[str, int, Lane], asyncio.Lock] = {}
        self._coordinators: dict[str, tuple[str, int]] = {}
        self._refreshing = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    # Who to ask.

    async def ask_any(self, api: ApiKey, message: Any) -> Any:
        """The answer of whichever broker can be reached."""
        failure: ApiError = ConnectionFailed("no broker is known")
        for address in self._addresses():
            try:
                connection = await self._connect(address, Lane.MAIN)
                return await connection.request(api, message, self.request_timeout)
            except ApiError as error:
                if not error.retriable:
                    raise
                failure = error
        raise failure

    async def ask(
        self,
        node_id: int,
        api: ApiKey,
        message: Any,
        *,
        lane: Lane = Lane.MAIN,
        timeout: float | None = None,
    ) -> Any:
        """The answer of one broker."""
        connection = await self.connection(node_id, lane)
        return await connection.request(api, message, timeout or self.request_timeout)

    async def ask_controller(self, api: ApiKey, message: Any) -> Any:
        """The answer of the controller, or of a broker that passes on what is for it."""
        if self.metadata.controller_id not in self.metadata.nodes:
            await self.refresh(())
        if self.metadata.controller_id not in self.metadata.nodes:
            return await self.ask_any(api, message)
        return await self.ask(self.metadata.controller_id, api, message)

    async def ask_coordinator(
        self, group: str, api: ApiKey, message: Any, *, timeout: float | None = None
    ) -> Any:
        """The answer of a group's coordinator. :meth:`forget_coordinator` when it is not that."""
        address = await self._coordinator(group)
        try:
            connection = await self._connect(address, Lane.GROUP)
            return await connection.request(api, message, timeout or self.request_timeout)
        except ConnectionFailed:
            self.forget_coordinator(group)
            raise

    async def connection(self, node_id: int, lane: Lane = Lane.MAIN) -> Connection:
        """An open connection to a broker that is known from the metadata."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(f"no broker {node_id} is known")
        return await self._connect((node.host, node.port), lane)

    # Metadata.

    async def refresh(
        self, topics: Iterable[str] | None, *, create: bool = False
    ) -> MetadataResponse:
        """Ask for ``topics`` (None: all of them; none: just the brokers) and keep the answer.

        ``create``: the broker may create those that are missing.
        """
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=create)
        response: MetadataResponse = await self.ask_any(ApiKey.METADATA, request)
        self.metadata.update(response)
        return response

    def apply_leader_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        epoch: int,
        endpoint: Endpoint | None = None,
    ) -> bool:
        """Take in who leads a partition now, as an error response told (KIP-951).

        Whether that was news: then the request can be sent there at once, else the topic is to be
        forgotten as after any other refusal.
        """
        return self.metadata.apply_leader_hint(topic, partition, leader_id, epoch, endpoint)

    async def need_node(self, node_id: int) -> None:
        """Raise :class:`~qbus.errors.ApiError` BROKER_NOT_AVAILABLE for a broker unknown to all."""
        if node_id not in self.metadata.nodes:
            await self.refresh(())
        if node_id not in self.metadata.nodes:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id}")

    async def need(self, topics: Iterable[str], *, create: bool = False) -> None:
        """See to it that something is known of each of ``topics``, be it an error."""
        async with self._refreshing:
            missing = self.metadata.missing(topics)
            if missing:
                await self.refresh(missing, create=create)

    # Coordinators.

    async def coordinator(self, group: str) -> int:
        """The id of the broker that coordinates ``group``."""
        request = FindCoordinatorRequest(key_type=_GROUP_COORDINATOR, coordinator_keys=[group])
        response: FindCoordinatorResponse = await self.ask_any(ApiKey.FIND_COORDINATOR, request)
        check(response.error_code, response.error_message)
        (found,) = response.coordinators
        check(found.error_code, found.error_message)
        self._coordinators[group] = (found.host, found.port)
        return found.node_id

    def forget_coordinator(self, group: str) -> None:
        """The broker that was asked does not coordinate ``group``."""
        self._coordinators.pop(group, None)

    async def _coordinator(self, group: str) -> tuple[str, int]:
        if group not in self._coordinators:
            await self.coordinator(group)
        return self._coordinators[group]

    # Connections.

    def _addresses(self) -> Sequence[tuple[str, int]]:
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        random.shuffle(known)
        known.sort(key=lambda address: (*address, Lane.MAIN) not in self._connections)
        return list(dict.fromkeys([*known, *self._bootstrap]))

    async def _connect(self, address: tuple[str, int], lane: Lane) -> Connection:
        key = (*address, lane)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_open:
                return connection
            self._connections.pop(key, None)
            connection = await Connection.open(*address, self._client_id, self.request_timeout)
            if self._is_closed:
                await connection.close()
                raise ConnectionFailed("the client is closed")
            self._connections[key] = connection
            return connection


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    timeout: float,
    *,
    final: Container[ErrorCode] = frozenset(),
) -> T:
    """What ``attempt`` returns, repeated for up to ``timeout`` seconds on retriable errors.

    Not on those in ``final``, which are the answer for this caller.
    """
    deadline = time.monotonic() + timeout
    for delay in backoff():
        try:
            return await attempt()
        except ApiError as error:
            is_final = not error.retriable or error.code in final
            if is_final or time.monotonic() + delay > deadline:
                raise
        await asyncio.sleep(delay)
    raise AssertionError("backoff never ends")
