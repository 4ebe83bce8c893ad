"""Requests to the right broker: any broker, a partition's leader, a group's coordinator."""

import asyncio
import contextlib
import random
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

from qbus.errors import ApiError, ErrorCode, QbusError, WireError
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity
from qbus.wire import ApiKey
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

from ..errors import ConnectionFailed, RequestTimedOut, check
from ..security import PLAINTEXT
from ..types import TopicPartition
from . import bootstrap as bootstraps
from .bootstrap import Address
from .connection import Connection
from .hedging import Attempts, first_answer
from .metadata import ClusterMetadata, Endpoint
from .pool import ConnectionGroup, ConnectionGroupKey, ConnectionPool
from .trouble import SILENT_S, USUAL_S, TroubleLog


class CoordinatorKind(IntEnum):
    """What a coordinator is for (the protocol's key types)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def owner(self) -> str:
        """What its keys name, in messages."""
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


_LONGEST_CONNECT = 10.0
_PATIENCE = 1 / 3
"""Share of the request time-out after which :meth:`Cluster.ask_any` asks another broker too."""


class Cluster:
    """Connections to the brokers of one cluster, and its metadata.

    Times are in seconds. Every method that asks a broker raises :class:`~qbus.errors.ApiError`, or
    :class:`~qbus.errors.WireError` for a malformed response.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        client_id: str,
        request_timeout: float,
        *,
        metadata_max_age: float = 300.0,
        security: ClientSecurity | None = None,
    ) -> None:
        """``bootstrap``: ``host:port,...``, a list of such, or ``zk://host:port,.../chroot``.

        metadata_max_age: seconds after which the metadata of topics in use is refreshed.
        security: what protects the connections; None: nothing does.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        self.name = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        self.security = PLAINTEXT if security is None else security
        self._bootstrap = bootstraps.parse(bootstrap, self.security.protocol)
        connect_timeout = min(request_timeout, _LONGEST_CONNECT)
        self.troubles = TroubleLog(client_id)
        self._pool = ConnectionPool(
            client_id,
            connect_timeout=connect_timeout,
            troubles=self.troubles,
            security=None if self.security == PLAINTEXT else OutgoingSecurity(self.security),
        )
        self._metadata_max_age = metadata_max_age
        self.request_timeout = request_timeout
        self.metadata = ClusterMetadata()
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}
        self._refreshing = asyncio.Lock()
        self._keeping_fresh: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close every connection."""
        if self._keeping_fresh is not None:
            self._keeping_fresh.cancel()
            await asyncio.gather(self._keeping_fresh, return_exceptions=True)
        await self._pool.close()

    # Requests.

    async def ask_any(self, api: ApiKey, message: Any, *, is_repeatable: bool = True) -> Any:
        """Return the response of the first broker that answers: known brokers first, then
        bootstrap.

        A repeatable request also goes to another broker when one is slow.
        """
        patience = self.request_timeout * _PATIENCE if is_repeatable else None
        attempts = self._attempts(api, message, patience)
        return await first_answer(attempts, patience, ConnectionFailed("no broker is known"))

    async def ask(
        self,
        node_id: int,
        api: ApiKey,
        message: Any,
        *,
        connection_group: ConnectionGroupKey = ConnectionGroup.MAIN,
        timeout: float | None = None,
        by_id: bool = False,
    ) -> Any:
        """Return the response of one broker; ``by_id`` as in :meth:`Connection.request`."""
        connection = await self.connection(node_id, connection_group)
        return await connection.request(api, message, timeout or self.request_timeout, by_id=by_id)

    async def ask_controller(self, api: ApiKey, message: Any) -> Any:
        """Return the controller's response; any broker forwards the request if none is known."""
        if self.metadata.controller_id not in self.metadata.nodes:
            await self.refresh(())
        if self.metadata.controller_id not in self.metadata.nodes:
            return await self.ask_any(api, message, is_repeatable=False)
        try:
            return await self.ask(self.metadata.controller_id, api, message)
        except (ConnectionFailed, RequestTimedOut):
            self.metadata.forget_controller()
            raise

    async def ask_coordinator(
        self,
        group: str,
        api: ApiKey,
        message: Any,
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        connection_group: ConnectionGroup = ConnectionGroup.COORDINATOR,
        timeout: float | None = None,
        by_id: bool = False,
        newest: int | None = None,
    ) -> Any:
        """Return the response of the coordinator of a group, or of a transactional id.

        ``by_id`` and ``newest`` as in :meth:`Connection.request`. The caller calls
        :meth:`forget_coordinator` if the response says that the broker is not it.
        """
        try:
            connection = await self.coordinator_connection(group, kind, connection_group)
            return await connection.request(
                api, message, timeout or self.request_timeout, by_id=by_id, newest=newest
            )
        except (ConnectionFailed, RequestTimedOut):
            self.forget_coordinator(group, kind)
            raise

    async def coordinator_connection(
        self,
        key: str,
        kind: CoordinatorKind,
        connection_group: ConnectionGroup = ConnectionGroup.COORDINATOR,
    ) -> Connection:
        """Return an open connection to the coordinator of a group, or of a transactional id."""
        if (kind, key) not in self._coordinators:
            await self.coordinator(key, kind)
        return await self._pool.connect(self._coordinators[kind, key], connection_group)

    async def connection(
        self, node_id: int, connection_group: ConnectionGroupKey = ConnectionGroup.MAIN
    ) -> Connection:
        """Return an open connection to a broker that the metadata names."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailed(f"no broker {node_id} is known")
        return await self._pool.connect((node.host, node.port), connection_group)

    async def _attempts(self, api: ApiKey, message: Any, patience: float | None) -> Attempts[Any]:
        asked: set[Address] = set()
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        random.shuffle(known)
        for address in sorted(known, key=self._pool.rank):
            asked.add(address)
            yield partial(self._try, address, api, message, patience)
        for address in await self._bootstrap.find(self.request_timeout):
            if address not in asked:
                asked.add(address)
                yield partial(self._try, address, api, message, patience)

    async def _try(
        self, address: Address, api: ApiKey, message: Any, patience: float | None
    ) -> Any:
        connection = await self._pool.connect(address, ConnectionGroup.MAIN)
        slow = asyncio.get_running_loop().call_later(
            patience or self.request_timeout, self._pool.failed, address
        )
        name = "{}:{}".format(*address)
        subject = f"an answer of broker {name}"
        silent = asyncio.get_running_loop().call_later(
            SILENT_S, self.troubles.met, subject, f"none to {api.name} in {SILENT_S:.0f} s"
        )
        try:
            answer = await connection.request(api, message, self.request_timeout)
        except ConnectionFailed as error:  # again and again perhaps, as where SASL is wanted
            reason = str(error).removeprefix(f"{name}: ")
            self.troubles.met(subject, reason, grace=USUAL_S)
            raise
        finally:
            slow.cancel()
            silent.cancel()
        self._pool.succeeded(address)
        self.troubles.solved(subject)
        return answer

    # Metadata.

    async def refresh(
        self, topics: Iterable[str] | None, *, create: bool = False
    ) -> MetadataResponse:
        """Request the metadata of ``topics`` (None: all; empty: brokers only) and keep it.

        ``create``: the broker may create missing topics.
        """
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=create)
        response: MetadataResponse = await self.ask_any(ApiKey.METADATA, request)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102
            self.metadata.forget_nodes()
        check(response.error_code)
        if not response.brokers:  # the broker has just started
            raise ConnectionFailed("a broker named no brokers in its metadata")
        self.metadata.update(response, is_whole=topics is None)
        for topic in response.topics:
            self._note_topic(topic.name or "")
        return response

    def _note_topic(self, name: str) -> None:
        refused = self.metadata.errors.get(name)
        if refused is None:
            self.troubles.solved(f"topic {name}")
        elif refused.retriable:  # others are raised
            self.troubles.met(f"topic {name}", refused, grace=USUAL_S)

    async def need(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Request the metadata of those ``topics`` that have none; an error counts as metadata."""
        wanted = list(topics)
        if not self.metadata.missing(wanted):
            return
        async with self._refreshing:
            missing = self.metadata.missing(wanted)
            if missing:
                await self.refresh(missing, create=create)
        if self._keeping_fresh is None:
            self._keeping_fresh = asyncio.create_task(self._keep_fresh())

    def leaderless(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ApiError]:
        """Return why those of ``partitions`` have no leader that have none; the log says so, too.

        Errors of whole topics are left out: :meth:`refresh` reports them.
        """
        found = {}
        for partition in partitions:
            if partition.topic in self.metadata.errors:
                continue
            try:
                self.metadata.leader(*partition)
            except ApiError as error:
                found[partition] = error
                self.troubles.met(f"{partition.topic}-{partition.partition}", error, grace=USUAL_S)
        return found

    async def need_node(self, node_id: int) -> None:
        """Raise :class:`~qbus.errors.ApiError` BROKER_NOT_AVAILABLE unless the cluster has this
        broker.
        """
        if node_id not in self.metadata.nodes:
            await self.refresh(())
        if node_id not in self.metadata.nodes:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id}")

    def apply_leader_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        epoch: int,
        endpoint: Endpoint | None = None,
    ) -> bool:
        """Keep the new leader of a partition that an error response named (KIP-951).

        Returns whether it was new: then the request can go there at once. Otherwise the caller
        forgets the topic, as after any other refusal.
        """
        return self.metadata.apply_leader_hint(topic, partition, leader_id, epoch, endpoint)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._metadata_max_age * random.uniform(0.8, 1.0))  # noqa: S311
            with contextlib.suppress(QbusError):  # the known metadata stays in use
                await self.refresh(self.metadata.topics)

    # Coordinators.

    async def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Return the id of the broker that coordinates a group, or a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        subject = f"the coordinator of {kind.owner} {key}"
        response: FindCoordinatorResponse = await self.ask_any(ApiKey.FIND_COORDINATOR, request)
        try:
            check(response.error_code, response.error_message)
            if len(response.coordinators) != 1:
                raise WireError(f"{len(response.coordinators)} coordinators for one {kind.owner}")
            (found,) = response.coordinators
            check(found.error_code, found.error_message)
        except ApiError as error:
            if error.retriable:
                self.troubles.met(subject, error, grace=USUAL_S)
            raise
        self.troubles.solved(subject)
        self._coordinators[kind, key] = (found.host, found.port)
        return found.node_id

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Look up the coordinator again before the next request."""
        self._coordinators.pop((kind, key), None)
