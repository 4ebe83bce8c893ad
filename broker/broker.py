"""The parts of one broker, put together; started and stopped in the order of their needs."""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from qbus.clock import Clock
from qbus.config import Address, BrokerConfig, TopicConfig

from .controller import Controller, check_alone, ensure_cluster_id, register_broker
from .group import GroupCoordinator
from .log import LogConfig, LogManager
from .metadata_cache import MetadataCache
from .metadata_image import BrokerInfo
from .metadata_store import metadata_store
from .metrics import Metrics
from .producer_ids import ProducerIds
from .replication.replica_manager import ReplicaManager
from .replication.settings import log_config

_log = logging.getLogger(__name__)

_SESSIONS = 1.5  # ZooKeeper ends them by and by
_EVERY_INTERFACE = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not listened on


class Broker:
    """What handlers reach: the broker's configuration, metadata, partitions and groups.

    ``cluster_id``, ``logs``, ``replicas`` are there from :meth:`start` on.
    """

    cluster_id: str
    logs: LogManager
    replicas: ReplicaManager

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.node_id = config.node_id
        self.clock = clock
        self.metrics = Metrics()
        self.store = metadata_store(config)
        self.metadata = MetadataCache(self.store, config)
        self.controller = Controller(self.store, self.metadata, config, clock)
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
        await register_broker(
            self.store, self._info(listening), self.clock, patience_s=self._patience_s
        )
        await check_alone(self.store, self.node_id)
        await self.controller.start()
        await self.metadata.start()
        self.logs = await asyncio.to_thread(self._open_logs)
        self.replicas = ReplicaManager(
            self.config, self.node_id, self.logs, self.metadata, self.clock, self.metrics
        )
        await self.replicas.start()
        await self.groups.start()
        self._show_groups()

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
            if hasattr(self, "replicas"):
                parts.push_async_callback(self.replicas.stop)
            parts.push_async_callback(self.groups.close)

    def _show_groups(self) -> None:
        groups, metrics = self.groups, self.metrics
        metrics.gauge("groups", "Consumer groups in memory", lambda: groups.states().total())
        metrics.counter("group_rebalances", "Rebalances completed", lambda: groups.rebalances)
        metrics.counter("offset_commits", "Offsets committed", lambda: groups.commits)
        metrics.counter("offsets_expired", "Offsets expired", lambda: groups.expired_offsets)

    @property
    def _patience_s(self) -> float:
        """How long what is left of a broker that crashed stays registered, at most."""
        if self.config.zookeeper_address is None:
            return 0.0
        return _SESSIONS * self.config.zookeeper_session_timeout_ms / 1000

    def _make_directory(self) -> None:
        Path(self.config.log_dirs[0]).mkdir(parents=True, exist_ok=True)

    def _info(self, listening: Address) -> BrokerInfo:
        address = self.config.advertised_address
        if address is None:
            host = socket.getfqdn() if listening.host in _EVERY_INTERFACE else listening.host
            address = Address(host, listening.port)
        return BrokerInfo(self.node_id, address.host, address.port, self.config.broker_rack)

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
        settings = (
            TopicConfig(self.config, {}) if topic is None else self.metadata.topic_config(topic)
        )
        return log_config(settings, self.config)
