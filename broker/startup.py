"""How a broker starts and stops: its parts, put together in the order of their needs."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qbus.clock import Clock
from qbus.config import Address, BrokerConfig, ListenerInfo, TopicConfig
from qbus.metadata import MetadataStore, SessionState, StoreError
from qbus.metadata.znodes import BrokerNode, EndpointNode
from qbus.service.event_loop import NEVER, ticks_of
from qbus.wire import ApiKey

from .audit import AuditLog
from .authentication import Authentication, Outcome, start_authentication
from .authorization import AccessControl
from .authorization.setup import open_access
from .boot import current_boot, identity, lost_memory, remember_boot
from .broker import Broker
from .compaction.cleaner import LogCleaner
from .compaction.remembering import CompactedTopics
from .consumer_group import ConsumerGroups
from .controller import (
    Controller,
    FailureDetector,
    ensure_cluster_id,
    expire_previous_registration,
    find_cluster_id,
    raise_broker_epoch,
    register_broker,
    resign,
    unregister_broker,
)
from .controller.configs import FORMER_MIRROR_SOURCE
from .controller.idle_queues import SWEEP_S, IdleQueueSweep
from .dead_letters import DeadLetters
from .delay import DelayService
from .descriptors import most_files_of_logs
from .group import GroupCoordinator
from .group.offset_log import OffsetLog, offsets_topic
from .group.offset_machine import OffsetsMachine
from .internal_logs import InternalLog, LogParts
from .kafka.queue_leaders import QueueLeaders
from .kafka.replica_sessions import ReplicaSessions
from .kafka.share_requests import GroupQueues
from .kafka.share_sessions import ShareSessions
from .kafka.transaction_peers import TransactionPeers, peer_client
from .log import LogConfig, LogManager
from .log.files import PRIVATE
from .log.foreign import check_of_cluster
from .metadata.cache import MetadataCache
from .metadata.image import Event, Topic
from .metadata.store import metadata_store
from .metrics import Metrics
from .partition.registry import is_durable, log_config
from .partition.replica_manager import ReplicaManager
from .partition_fold import PartitionFold
from .producer_ids import ProducerIds
from .queues import QueueService
from .queues.idle_votes import IdleVotes
from .quotas.service import follow_quotas
from .registered_metrics import register_metrics
from .replicator.lazy_fetchers import LazyFetchers
from .share import ShareCoordinator
from .storage_state import StorageState
from .transaction import TransactionCoordinator
from .workers.worker import Worker

if TYPE_CHECKING:
    from .disque.service import DisqueService

_log = logging.getLogger(__name__)

_SESSIONS = 1.5  # ZooKeeper takes a little longer to end them
_DOUBTFUL = 2 / 3  # of a session's time-out: a connection broken before the stall counts from then
_STORAGE_S = 1.0
_TOKEN_KEYS_S = 5.0


@asynccontextmanager
async def running_broker(
    config: BrokerConfig,
    clock: Clock,
    listening: Sequence[ListenerInfo],
    worker: Worker | None = None,
    *,
    jobs: Sequence[ListenerInfo] = (),
) -> AsyncIterator[Broker]:
    """Open everything, and yield a broker that is ready to answer on ``listening``.

    ``worker``: what it shares with others on its machine. ``jobs``: where it listens for clients of
    jobs.

    On exit all is stopped, the logs are marked as closed cleanly, and what a part failed with is
    raised when the others are stopped, too.

    Raises:
        ConfigError: a data directory, or the node id, is in use by another broker.
        ApiError: no data directory can be used.
        StoreUnusable: the metadata store cannot be opened.
        OSError: the data directory cannot be made.
    """
    async with AsyncExitStack() as parts:
        store = _store_of(config, worker)
        parts.push_async_callback(store.close)
        is_over = asyncio.Event()
        store.on_state(partial(_end_with_session, is_over))
        metadata = MetadataCache(store, config)
        groups = GroupCoordinator(
            store, metadata, config, clock, kinds=ConsumerGroups(config, metadata)
        )
        controller = Controller(store, metadata, config, clock)
        closing_logs = await parts.enter_async_context(AsyncExitStack())
        parts.push_async_callback(metadata.close)
        await store.start()
        cluster_id = await _cluster_of(config, store)
        await metadata.start()
        authentication, access = await _know_clients(config, clock, store, metadata, parts)
        logs = await asyncio.to_thread(_open_logs, config, metadata, clock, cluster_id)
        closing_logs.push_async_callback(asyncio.to_thread, logs.close)
        machine = worker.machine if worker is not None else ""
        registration, sequence = await _register(
            config, clock, store, metadata, logs, (advertised(config, listening), jobs), machine
        )
        if store.is_shared:
            parts.push_async_callback(_unregister, store, config.node_id, registration)
        await metadata.applied(sequence)  # newer than the registration: it may be acted on
        _end_with_registration(is_over, metadata, registration, config)
        metrics = Metrics(lambda key: ApiKey(key).name)
        # The controller is stopped before what it decides about, though it starts first.
        stopping_replicas = await parts.enter_async_context(AsyncExitStack())
        parts.push_async_callback(groups.close)
        parts.push_async_callback(controller.stop)
        await controller.start(registration.epoch)
        fetchers = LazyFetchers(
            config, config.node_id, registration.epoch, metadata, clock, metrics
        )
        replicas = ReplicaManager(
            config, logs, metadata, clock, metrics, store, fetchers, ReplicaSessions
        )
        _doubt_after_stalls(config, store, replicas, parts)
        cleaner = _cleaner(config, clock, logs, replicas)
        stopping_replicas.push_async_callback(replicas.stop)
        delays, queues = _hidden_records(config, clock, metadata, replicas, stopping_replicas)
        idle_votes = _idle_votes(
            store, metadata, clock, queues, replicas, (config.node_id, registration.epoch)
        )
        log_parts = LogParts(clock, metadata, controller, replicas.tasks)
        transactions = _transactions(
            config, store, metadata, log_parts, replicas, stopping_replicas
        )
        _keep_offsets(config, log_parts, metadata, replicas, groups, stopping_replicas)
        shares = _share_coordinator(store, metadata, config, clock, groups, replicas)
        requests = _share_requests(config, metadata, replicas, queues, stopping_replicas)
        await replicas.start()
        await groups.start()
        StorageState(
            store,
            metadata,
            logs.directories,
            replicas.offline,
            config.node_id,
            registration.epoch,
        ).register(replicas.tasks)
        detector = FailureDetector(store, metadata, config.node_id, config.inter_broker_listener)
        _detect_failures(config, detector, parts)
        broker = Broker(
            config=config,
            clock=clock,
            metrics=metrics,
            store=store,
            metadata=metadata,
            controller=controller,
            producer_ids=transactions.producer_ids,
            groups=groups,
            logs=logs,
            replicas=replicas,
            cleaner=cleaner,
            delays=delays,
            queues=queues,
            shares=shares,
            transactions=transactions.coordinator,
            group_queues=requests.queues,
            share_sessions=requests.sessions,
            queue_leaders=requests.leaders,
            cluster_id=cluster_id,
            registration=registration,
            is_over=is_over,
            authentication=authentication,
            access=access,
            audit=access.audit,
        )
        _complete(broker, transactions.peers, detector, jobs, stopping_replicas, idle_votes)
        yield broker


async def _know_clients(
    config: BrokerConfig,
    clock: Clock,
    store: MetadataStore,
    metadata: MetadataCache,
    parts: AsyncExitStack,
) -> tuple[Authentication, AccessControl]:
    """Who clients are, and what they may do."""
    access = open_access(config, metadata.acls, is_alone=not store.is_shared)
    parts.push_async_callback(asyncio.to_thread, access.close)
    authentication = await start_authentication(config, clock, store, metadata, access.broker_names)
    parts.callback(authentication.close)
    if access.audit is not None:
        authentication.observers.append(partial(_record, access.audit))
    return authentication, access


def _record(audit: AuditLog, outcome: Outcome) -> None:
    """Have the audit log tell of an attempt to authenticate."""
    audit.authentication(
        principal=f"User:{outcome.user}",
        host=outcome.host,
        mechanism=outcome.mechanism,
        allowed=outcome.is_success,
        reason=outcome.reason,
    )


def _cleaner(
    config: BrokerConfig,
    clock: Clock,
    logs: LogManager,
    replicas: ReplicaManager[ReplicaSessions],
) -> LogCleaner:
    """Have compaction follow the partitions, which are not opened yet."""
    cleaner = LogCleaner(logs, config, clock)
    replicas.events.subscribe(cleaner)
    return cleaner


def _hidden_records(
    config: BrokerConfig,
    clock: Clock,
    metadata: MetadataCache,
    replicas: ReplicaManager[ReplicaSessions],
    stopping: AsyncExitStack,
) -> tuple[DelayService, QueueService]:
    """What keeps its state in hidden records of the partitions: delayed records, and queues."""
    dead_letters = DeadLetters(config, metadata, replicas)
    delays = DelayService(clock, dead_letters)
    queues = QueueService(clock, dead_letters)
    for service in (delays, queues):
        replicas.events.subscribe(service)
        service.register(replicas.tasks, config.log_retention_check_interval_ms / 1000)
    for stop in (dead_letters.close, delays.stop, queues.stop):
        stopping.callback(stop)
    return delays, queues


def _detect_failures(
    config: BrokerConfig, detector: FailureDetector, parts: AsyncExitStack
) -> None:
    """Begin to look for dead brokers; the hub knows of the end of a process without that."""
    if config.crash_detection_enable and config.zookeeper_address is not None:
        parts.push_async_callback(detector.stop)
        detector.start()


def _idle_votes(
    store: MetadataStore,
    metadata: MetadataCache,
    clock: Clock,
    queues: QueueService,
    replicas: ReplicaManager[ReplicaSessions],
    broker: tuple[int, int],
) -> IdleVotes:
    """What votes for idle queues, and follows the partitions, which are not opened yet."""
    votes = IdleVotes(store, metadata, clock, queues, broker)
    replicas.events.subscribe(votes)
    return votes


class _Transactions(NamedTuple):
    """The transaction coordinator, and what it needs."""

    coordinator: TransactionCoordinator
    peers: TransactionPeers
    producer_ids: ProducerIds


def _transactions(
    config: BrokerConfig,
    store: MetadataStore,
    metadata: MetadataCache,
    parts: LogParts,
    replicas: ReplicaManager[ReplicaSessions],
    stopping: AsyncExitStack,
) -> _Transactions:
    producer_ids = ProducerIds(store, config.node_id)
    peers = TransactionPeers(config.node_id, partial(peer_client, config, metadata))
    coordinator = TransactionCoordinator(config, parts, producer_ids, peers)
    replicas.events.subscribe(coordinator.log)
    stopping.callback(peers.close)
    stopping.push_async_callback(coordinator.stop)
    return _Transactions(coordinator, peers, producer_ids)


def _keep_offsets(
    config: BrokerConfig,
    parts: LogParts,
    metadata: MetadataCache,
    replicas: ReplicaManager[ReplicaSessions],
    groups: GroupCoordinator,
    stopping: AsyncExitStack,
) -> None:
    """Keep committed offsets in a log, if that is configured; they move when it is changed."""
    log = InternalLog(
        parts,
        partial(offsets_topic, config),
        OffsetsMachine,
        on_loaded=groups.shard_loaded,
        on_unloaded=groups.shard_unloaded,
    )
    replicas.events.subscribe(log)
    stopping.push_async_callback(log.stop)
    groups.use_log(OffsetLog(log, metadata.topics))


def _complete(
    broker: Broker,
    peers: TransactionPeers,
    detector: FailureDetector,
    jobs: Sequence[ListenerInfo],
    stopping: AsyncExitStack,
    idle_votes: IdleVotes,
) -> None:
    """Add what stands on all the rest: compaction, transactions, quotas, metrics, jobs."""
    peers.serve(broker)
    broker.quotas, broker.connection_rates = follow_quotas(
        broker.config, broker.metadata, broker.replicas.tasks, broker.access.is_broker
    )
    stopping.push_async_callback(asyncio.to_thread, broker.cleaner.stop)
    broker.cleaner.start()
    CompactedTopics(broker.cleaner, broker.metadata, broker.controller).register(
        broker.replicas.tasks
    )
    register_metrics(broker, detector)

    async def look_after_storage() -> None:
        await broker.groups.look_after_storage(is_controller=broker.controller.is_active)

    tasks = broker.replicas.tasks
    tasks.add("look after the storage of offsets", _STORAGE_S, look_after_storage)
    if broker.authentication.takes_tokens:
        read = broker.authentication.look_after_tokens
        tasks.add("read the keys of tokens", _TOKEN_KEYS_S, read)
    _delete_idle_queues(broker, idle_votes)
    stopping.push_async_callback(idle_votes.close)
    if jobs:
        service = _serve_jobs(broker, jobs, idle_votes)
        idle_votes.users.append(service.is_used)
        stopping.callback(service.close)


def _delete_idle_queues(broker: Broker, votes: IdleVotes) -> None:
    sweep = IdleQueueSweep(broker.store, broker.metadata, broker.controller)
    votes.register(broker.replicas.tasks)
    broker.replicas.tasks.add("delete idle queues", SWEEP_S, sweep.sweep)
    broker.metrics.counter(
        "queues_deleted_idle",
        "Number of idle queues that this broker has deleted as the controller.",
        lambda: sweep.deleted,
    )


def _serve_jobs(
    broker: Broker, listening: Sequence[ListenerInfo], idle_votes: IdleVotes
) -> "DisqueService":
    """Have the queues of jobs, which are imported only where they are served."""
    from .disque.metrics import register_metrics as register_job_metrics  # noqa: PLC0415
    from .disque.queues import SettingsReader  # noqa: PLC0415
    from .disque.service import DisqueService  # noqa: PLC0415
    from .disque.serving import is_told_in_clear, link_of  # noqa: PLC0415
    from .disque.world import World  # noqa: PLC0415

    plain, tls_address = _advertised_for_jobs(broker.config, listening)
    address = plain or tls_address
    link = link_of(broker.config)
    if broker.store.is_shared and is_told_in_clear(link, plain, tls_address):
        _log.warning(
            "nodes that serve jobs tell one another a password in the clear (%s): listen with"
            " DISQUES:// besides, which they then use",
            f"that of {link.user}" if link.user else "disque.requirepass",
        )
    world = World(
        broker.metadata,
        broker.replicas,
        broker.queues,
        broker.delays,
        broker.controller,
        broker.shares,
        SettingsReader(broker.metadata),
        broker.authentication if broker.config.disque_authenticates else None,
        broker.access,
        link,
        tls_address,
        _note_jobs(broker.authentication),
        idle_votes.reclaim,
    )
    service = DisqueService(
        broker.config, broker.clock, broker.cluster_id, address or listening[0].address, world
    )
    broker.disque = service
    broker.replicas.events.subscribe(service)
    broker.replicas.tasks.add("look after the queues of jobs", 60.0, service.look_after_queues)
    register_job_metrics(broker.metrics, service)
    return service


def _note_jobs(authentication: Authentication) -> Callable[[str, str, str, str], None]:
    """What notes how clients of jobs log in where it is not as users of SASL."""

    def note(user: str, mechanism: str, host: str, reason: str) -> None:
        authentication.note(user, mechanism, host, reason=reason)

    return note


def _share_coordinator(
    store: MetadataStore,
    metadata: MetadataCache,
    config: BrokerConfig,
    clock: Clock,
    groups: GroupCoordinator,
    replicas: ReplicaManager[ReplicaSessions],
) -> ShareCoordinator:
    async def is_consumer_group(group_id: str) -> bool:
        return await groups.describe(group_id) is not None

    shares = ShareCoordinator(store, metadata, config, clock, is_consumer_group)
    shares.register(replicas.tasks)
    return shares


class _ShareRequests(NamedTuple):
    """What requests of share groups need besides the coordinator."""

    queues: GroupQueues
    sessions: ShareSessions
    leaders: QueueLeaders


def _share_requests(
    config: BrokerConfig,
    metadata: MetadataCache,
    replicas: ReplicaManager[ReplicaSessions],
    queues: QueueService,
    stopping: AsyncExitStack,
) -> _ShareRequests:
    group_queues = GroupQueues(replicas, metadata, queues)
    sessions = ShareSessions(group_queues, config)
    leaders = QueueLeaders(config, metadata, replicas, queues)
    stopping.push_async_callback(leaders.close)
    stopping.push_async_callback(sessions.close)
    return _ShareRequests(group_queues, sessions, leaders)


def _store_of(config: BrokerConfig, worker: Worker | None) -> MetadataStore:
    """The metadata store, which is not started; the directory that it lies in exists."""
    store = metadata_store(config, worker.store if worker is not None else None)
    if not store.is_shared:
        make_directory(config)
    return store


async def _cluster_of(config: BrokerConfig, store: MetadataStore) -> str:
    """Return the id of the cluster, a new one if there is none yet.

    Raises ConfigError before anything is written if a data directory is of another cluster.
    """
    address = config.zookeeper_address
    place = f"the store in {config.log_dirs[0]}" if address is None else f"ZooKeeper at {address}"
    check_of_cluster(config.log_dirs, await find_cluster_id(store), place)
    make_directory(config)
    return await ensure_cluster_id(store)


# Registration


async def _register(
    config: BrokerConfig,
    clock: Clock,
    store: MetadataStore,
    metadata: MetadataCache,
    logs: LogManager,
    reached: tuple[Sequence[EndpointNode], Sequence[ListenerInfo]],
    machine: str,
) -> tuple[BrokerNode, int]:
    """Resign from what may not be true any more; only then be registered, and elected.

    ``reached``: where by Kafka's clients, and where it listens for clients of jobs.

    Returns the registration, and the sequence number of the change that announces it.
    """
    node_id, is_alone = config.node_id, not store.is_shared
    boot = current_boot()
    lost = lost_memory(logs.directories, boot)
    directory = identity(logs.directories, boot)
    is_local = config.zookeeper_address is None
    session_s = 0.0 if is_local else config.zookeeper_session_timeout_ms / 1000
    await expire_previous_registration(store, node_id, directory, timeout_s=_SESSIONS * session_s)
    epoch = await raise_broker_epoch(store, node_id, clock)
    await resign(store, metadata, node_id, _lost_records(metadata, logs, lost), is_alone=is_alone)
    remember_boot(logs.directories, boot)
    endpoints, listening_for_jobs = reached
    jobs, jobs_with_tls = _advertised_for_jobs(config, listening_for_jobs)
    rack, now_ms = config.broker_rack, clock.time_ms()
    registration = BrokerNode(
        endpoints[0].host,
        endpoints[0].port,
        epoch,
        rack,
        now_ms,
        directory,
        machine=machine,
        disque=jobs,
        disque_tls=jobs_with_tls,
        listeners=BrokerNode.listed(endpoints),
    )
    return registration, await register_broker(store, node_id, registration)


def _lost_records(
    metadata: MetadataCache, logs: LogManager, lost: list[str]
) -> Callable[[Topic, int], bool]:
    """Tell whether records of a partition may be missing here; ``lost``: directories."""

    def has_lost(topic: Topic, index: int) -> bool:
        log = logs.get(topic.name, index)
        if log is None or not log.is_usable or log.topic_id not in {None, topic.id}:
            return True
        if is_durable(metadata.topic_config(topic)):
            return False
        return any(log.directory.startswith(f"{path}/") for path in lost)

    return has_lost


def advertised(config: BrokerConfig, listening: Sequence[ListenerInfo]) -> list[EndpointNode]:
    """Return where clients and other brokers reach the listeners, the first one first."""
    stated = config.advertised_addresses
    endpoints = []
    for one in listening:
        address = stated.get(one.name) or _reachable(one.address)
        endpoints.append(EndpointNode(one.name, one.protocol, address.host, address.port))
    return endpoints


def _reachable(listening: Address) -> Address:
    host = socket.getfqdn() if listening.is_every_interface else listening.host
    return Address(host, listening.port)


def _advertised_for_jobs(
    config: BrokerConfig, listening: Sequence[ListenerInfo]
) -> tuple[Address | None, Address | None]:
    """Where clients of jobs reach the broker without TLS and with it, as far as they do."""
    stated, elsewhere = config.advertised_disque_addresses, config.advertised_address
    found: dict[bool, Address] = {}
    for one in listening:
        host = elsewhere.host if elsewhere is not None else _reachable(one.address).host
        found[one.protocol.is_encrypted] = stated.get(one.name) or Address(host, one.address.port)
    return found.get(False), found.get(True)


async def _unregister(store: MetadataStore, node_id: int, registration: BrokerNode) -> None:
    """Let others take over now, and not only when the logs are closed."""
    try:
        await unregister_broker(store, node_id, registration.epoch)
    except StoreError as error:
        _log.info("the registration ends with the session: %s", error)


def _doubt_after_stalls(
    config: BrokerConfig,
    store: MetadataStore,
    replicas: ReplicaManager[ReplicaSessions],
    parts: AsyncExitStack,
) -> None:
    """Have a broker whose event loop stood still ask for its session before it serves on."""
    ticks = ticks_of(asyncio.get_running_loop())
    if ticks is None or not store.is_shared:
        return

    def on_lapse(stood_s: float) -> None:
        _log.error(
            "the event loop stood still for %.1f s: nothing is acknowledged until it is known"
            " whether the session with the metadata store has ended",
            stood_s,
        )
        store.doubt()
        replicas.lease.stood_still(stood_s)

    session_s = config.zookeeper_session_timeout_ms / 1000
    ticks.lease(_DOUBTFUL * session_s, on_lapse)
    parts.callback(ticks.lease, NEVER, on_lapse)


def _end_with_session(is_over: asyncio.Event, state: SessionState) -> None:
    if state is SessionState.LOST:
        is_over.set()


def _end_with_registration(
    is_over: asyncio.Event,
    metadata: MetadataCache,
    registration: BrokerNode,
    config: BrokerConfig,
) -> None:
    """Have ``is_over`` set at once when the registration is gone, whatever disks wait for."""

    def look(_: Sequence[Event] = ()) -> None:
        known = metadata.brokers.get(config.node_id)
        if known is None or known.epoch != registration.epoch:
            is_over.set()

    metadata.subscribe(look, is_first=True)
    look()


# Logs


def make_directory(config: BrokerConfig) -> None:
    """Make the first data directory, where the metadata lie. Raises OSError.

    Nobody else may read it; one that is there is left as it is.
    """
    Path(config.log_dirs[0]).mkdir(PRIVATE, parents=True, exist_ok=True)


def _open_logs(
    config: BrokerConfig, metadata: MetadataCache, clock: Clock, cluster_id: str
) -> LogManager:
    def config_of(name: str) -> LogConfig:
        topic = metadata.topics.get(name)
        if topic is None:  # its offsets may have gaps, for all that is known
            settings = TopicConfig(config, {FORMER_MIRROR_SOURCE: "unknown"})
        else:
            settings = metadata.topic_config(topic)
        return log_config(settings, config)

    def topic_id_of(name: str) -> bytes | None:
        topic = metadata.topics.get(name)
        return None if topic is None else topic.id

    return LogManager.open(
        config.log_dirs,
        config_of,
        clock,
        node_id=config.node_id,
        cluster_id=cluster_id,
        most_files=most_files_of_logs(),
        make_fold=PartitionFold,
        topic_id_of=topic_id_of,
    )
