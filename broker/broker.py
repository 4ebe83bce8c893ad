"""The parts of one broker, put together; started and stopped in the order of their needs."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from qbus.clock import Clock
from qbus.config import Address, BrokerConfig, TopicConfig
from qbus.metadata import SessionState, StoreError
from qbus.metadata.znodes import BrokerNode

from .boot import current_boot, identity, lost_memory, remember_boot
from .controller import (
    Controller,
    FailureDetector,
    announce_stop,
    ensure_cluster_id,
    expire_previous_registration,
    leaderless_partitions,
    raise_broker_epoch,
    register_broker,
    resign,
    unregister_broker,
)
from .controller.configs import FORMER_MIRROR_SOURCE
from .full_disks import FullDisks
from .group import GroupCoordinator
from .log import LogConfig, LogManager
from .metadata.cache import MetadataCache
from .metadata.image import Event, Topic
from .metadata.store import metadata_store
from .metrics import Metrics
from .partition.replica_manager import ReplicaManager
from .partition.settings import is_durable, log_config
from .producer_ids import ProducerIds

_log = logging.getLogger(__name__)

_SESSIONS = 1.5  # ZooKeeper ends them by and by
_EVERY_INTERFACE = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not listened on


class Broker:
    """What handlers reach: the broker's configuration, metadata, partitions and groups.

    ``cluster_id``, ``logs``, ``broker_epoch`` (that of its registration) and ``replicas`` are there
    from :meth:`start` on. ``is_over`` is set when it cannot keep what it promises any more: its
    session has ended, or somebody took its registration away.
    """

    cluster_id: str
    broker_epoch: int
    logs: LogManager
    replicas: ReplicaManager

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.node_id = config.node_id
        self.clock = clock
        self.metrics = Metrics()
        self.store = metadata_store(config)
        self.is_over = asyncio.Event()
        self.store.on_state(self._on_state)
        self.metadata = MetadataCache(self.store, config)
        self.controller = Controller(self.store, self.metadata, config, clock)
        self.failure_detector = FailureDetector(self.store, self.metadata, config.node_id)
        self.producer_ids = ProducerIds(self.store, self.node_id)
        self.groups = GroupCoordinator(self.store, self.metadata, config, clock)

    async def start(self, listening: Address) -> None:
        """Open everything, and be ready to answer.

        Raises:
            ConfigError: a data directory, or the node id, is in use by another broker.
            ApiError: no data directory can be used.
            StoreUnusable: the metadata store cannot be opened.
            OSError: the data directory cannot be made.
        """
        self._make_directory()
        await self.store.start()
        self.cluster_id = await ensure_cluster_id(self.store)
        await self.metadata.start()
        self.logs = await asyncio.to_thread(self._open_logs)
        await self._come_back(listening)
        self.replicas = ReplicaManager(
            self.config,
            self.node_id,
            self.logs,
            self.metadata,
            self.clock,
            self.metrics,
            self.store,
            self.broker_epoch,
        )
        await self.replicas.start()
        await self.groups.start()
        self._full_disks = FullDisks(
            self.store, self.metadata, self.logs.directories, self.node_id, self.broker_epoch
        )
        self._full_disks.start()
        if self.config.crash_detection_enable and self.config.zookeeper_address is not None:
            self.failure_detector.start()
        self._show_groups()
        self._show_cluster()

    async def _come_back(self, listening: Address) -> None:
        """Claim nothing any more that may not be true; only then be there, and elected.

        When this returns, the metadata here is newer than the registration: it may be acted on.
        """
        store, node_id = self.store, self.node_id
        boot = current_boot()
        lost = lost_memory(self.logs.directories, boot)
        directory = identity(self.logs.directories, boot)
        await expire_previous_registration(store, node_id, directory, timeout_s=self._patience_s)
        self.broker_epoch = await raise_broker_epoch(store, node_id, self.clock)

        def has_lost(topic: Topic, index: int) -> bool:
            return self._has_lost(topic, index, lost)

        await resign(
            store, self.metadata, node_id, has_lost, is_alone=self.config.zookeeper_address is None
        )
        remember_boot(self.logs.directories, boot)
        self._registration = self._register_as(listening, directory)
        known = await register_broker(store, node_id, self._registration)
        await self.metadata.applied(known)
        self.metadata.subscribe(self._check_registered)
        await self.controller.start(self.broker_epoch)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.is_over.set()

    def _check_registered(self, _: Sequence[Event]) -> None:
        known = self.metadata.brokers.get(self.node_id)
        if known is None or known.epoch != self.broker_epoch:
            self.is_over.set()

    def _has_lost(self, topic: Topic, index: int, lost: list[str]) -> bool:
        """Whether records of a partition may be missing here; ``lost``: directories."""
        log = self.logs.get(topic.name, index)
        if log is None or not log.is_usable or log.topic_id not in {None, topic.id}:
            return True
        if is_durable(self.metadata.topic_config(topic)):
            return False
        return any(log.directory.startswith(f"{path}/") for path in lost)

    def drain(self) -> None:
        """Answer those who wait for records or for a rebalance; let nobody wait any more."""
        self.replicas.drain()
        self.groups.drain()

    async def stop(self) -> None:
        """Stop what was started, the last first, and mark the logs as closed cleanly.

        What one part fails with is raised when the others are stopped, too.
        """
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self.store.close)
            if hasattr(self, "logs"):
                parts.push_async_callback(asyncio.to_thread, self.logs.close)
            parts.push_async_callback(self.metadata.close)
            parts.push_async_callback(self._leave)
            if hasattr(self, "replicas"):
                parts.push_async_callback(self.replicas.stop)
            parts.push_async_callback(self.groups.close)
            parts.push_async_callback(self.controller.stop)
            parts.push_async_callback(self.failure_detector.stop)
            if hasattr(self, "_full_disks"):
                parts.push_async_callback(self._full_disks.stop)

    async def hand_over(self) -> None:
        """Have others lead what is led here, as far as there are others; within bounds of time."""
        if self.config.controlled_shutdown_enable and len(self.metadata.brokers) > 1:
            known = await announce_stop(self.store, self.node_id, self._registration)
            if known is not None:
                await self.metadata.applied(known)
                await self.controller.hand_over()

    async def _leave(self) -> None:
        """Let others go on without this broker now, and not only when its logs are closed."""
        if hasattr(self, "_registration") and self.config.zookeeper_address is not None:
            try:
                await unregister_broker(self.store, self.node_id, self.broker_epoch)
            except StoreError as error:
                _log.info("the registration ends with the session: %s", error)

    def _show_groups(self) -> None:
        groups, metrics = self.groups, self.metrics
        metrics.gauge("groups", "Consumer groups in memory", lambda: groups.states().total())
        metrics.counter("group_rebalances", "Rebalances completed", lambda: groups.rebalances)
        metrics.counter("offset_commits", "Offsets committed", lambda: groups.commits)
        metrics.counter("offsets_expired", "Offsets expired", lambda: groups.expired_offsets)

    def _show_cluster(self) -> None:
        metrics, store, controller = self.metrics, self.store, self.controller
        metrics.gauge(
            "metadata_store_connected",
            "Whether the session with the metadata store is connected",
            lambda: store.state is SessionState.CONNECTED,
        )
        metrics.timing(
            "metadata_store_seconds", "Time of requests to the metadata store", store.timings
        )
        metrics.gauge(
            "active_controller",
            "Whether this broker is the controller",
            lambda: controller.is_active,
        )
        metrics.counter(
            "leader_elections",
            "Partitions' states that this broker wrote as the controller",
            lambda: controller.elections,
        )
        metrics.counter(
            "brokers_found_dead",
            "Brokers whose processes died, found by this one before their sessions ended",
            lambda: self.failure_detector.noticed,
        )
        metrics.gauge(
            "leaderless_partitions",
            "Partitions of the cluster that no broker leads that lives",
            lambda: leaderless_partitions(self.metadata),
        )

    @property
    def _patience_s(self) -> float:
        """How long what is left of a broker that crashed stays registered, at most."""
        if self.config.zookeeper_address is None:
            return 0.0
        return _SESSIONS * self.config.zookeeper_session_timeout_ms / 1000

    def _make_directory(self) -> None:
        Path(self.config.log_dirs[0]).mkdir(parents=True, exist_ok=True)

    def _register_as(self, listening: Address, directory: str) -> BrokerNode:
        address = self.config.advertised_address
        if address is None:
            host = socket.getfqdn() if listening.host in _EVERY_INTERFACE else listening.host
            address = Address(host, listening.port)
        return BrokerNode(
            address.host,
            address.port,
            self.broker_epoch,
            self.config.broker_rack,
            self.clock.time_ms(),
            directory,
        )

    def _open_logs(self) -> LogManager:
        return LogManager.open(
            self.config.log_dirs,
            self._log_config,
            self.clock,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
        )

    def _log_config(self, name: str) -> LogConfig:
        topic = self.metadata.topics.get(name)
        if topic is None:  # its offsets may have gaps, for all that is known
            settings = TopicConfig(self.config, {FORMER_MIRROR_SOURCE: "unknown"})
        else:
            settings = self.metadata.topic_config(topic)
        return log_config(settings, self.config)
