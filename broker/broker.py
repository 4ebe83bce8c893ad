"""What handlers reach of the broker that they serve."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.metadata import MetadataStore
from qbus.metadata.znodes import BrokerNode

from .audit import AuditLog
from .authentication import Authentication
from .authorization import AccessControl
from .compaction.cleaner import LogCleaner
from .controller import Controller, announce_stop
from .delay import DelayService
from .group import GroupCoordinator
from .kafka.queue_leaders import QueueLeaders
from .kafka.replica_sessions import ReplicaSessions
from .kafka.share_requests import GroupQueues
from .kafka.share_sessions import ShareSessions
from .log import LogManager
from .metadata.cache import MetadataCache
from .metrics import Metrics
from .net.memory_budget import MemoryBudget
from .partition.replica_manager import ReplicaManager
from .producer_ids import ProducerIds
from .queues import QueueService
from .quotas import ClientQuotas, ConnectionRates
from .share import ShareCoordinator
from .telemetry import ClientTelemetry
from .transaction import TransactionCoordinator

if TYPE_CHECKING:
    from .disque.service import DisqueService


@dataclass(slots=True, eq=False, kw_only=True)
class Broker:
    """One broker: its configuration, metadata, partitions and groups.

    :func:`~qbus.broker.startup.running_broker` makes one. ``registration`` is what other brokers
    know of it. ``disque`` has the queues of jobs, where they are served. ``access`` says what
    clients may do, and ``audit`` records it, if that is wanted. ``quotas`` are those of clients,
    and ``connection_rates`` of addresses. ``memory`` is that of unfinished requests. ``is_over`` is
    set when it cannot keep its promises any more: its session has ended, or its registration is
    gone.
    """

    config: BrokerConfig
    clock: Clock
    metrics: Metrics
    store: MetadataStore
    metadata: MetadataCache
    controller: Controller
    producer_ids: ProducerIds
    groups: GroupCoordinator
    logs: LogManager
    replicas: ReplicaManager[ReplicaSessions]
    cleaner: LogCleaner
    delays: DelayService
    queues: QueueService
    shares: ShareCoordinator
    transactions: TransactionCoordinator
    group_queues: GroupQueues
    share_sessions: ShareSessions
    queue_leaders: QueueLeaders
    cluster_id: str
    registration: BrokerNode
    is_over: asyncio.Event
    authentication: Authentication
    disque: "DisqueService | None" = None
    access: AccessControl = field(default_factory=AccessControl)
    audit: AuditLog | None = None
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    connection_rates: ConnectionRates = field(default_factory=ConnectionRates)
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(0))
    telemetry: ClientTelemetry = field(init=False)

    def __post_init__(self) -> None:
        """Make what needs nothing but the other parts."""
        self.telemetry = ClientTelemetry(self.config, self.clock)

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return self.config.node_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration (KIP-903)."""
        return self.registration.epoch

    def drain(self) -> None:
        """Answer fetches and rebalances that wait, now and from now on. Produces wait on."""
        self.replicas.drain()
        self.share_sessions.drain()
        self.groups.drain()
        if self.disque is not None:
            self.disque.drain()

    async def shut_down_controlled(self) -> None:
        """Move the leadership of partitions to other brokers, within bounds of time."""
        if self.config.controlled_shutdown_enable and len(self.metadata.brokers) > 1:
            known = await announce_stop(self.store, self.node_id, self.registration)
            if known is not None:
                await self.metadata.applied(known)
                await self.controller.hand_over()
