"""The metrics of a broker's parts, registered once all of them are there."""

import platform
from collections.abc import Iterable, Sequence
from time import perf_counter

from qbus._version import __version__
from qbus.clock import Clock
from qbus.metadata import MetadataStore, SessionState

from .authentication import register_metrics as register_authentication_metrics
from .authorization import AccessControl
from .broker import Broker
from .compaction.metrics import register_metrics as register_compaction_metrics
from .controller import Controller, FailureDetector, leaderless_partitions
from .delay import DelayService
from .delay.metrics import register_metrics as register_delay_metrics
from .group import GroupCoordinator
from .group.metrics import GroupLag
from .internal_logs import register_metrics as register_internal_log_metrics
from .kafka.replica_sessions import ReplicaSessions
from .kafka.share_sessions import ShareSessions
from .metadata.cache import MetadataCache
from .metrics import Metrics
from .partition.background_tasks import BackgroundTasks
from .partition.replica_manager import ReplicaManager
from .queues import QueueService
from .queues.metrics import register_metrics as register_queue_metrics
from .quotas.metrics import register_metrics as register_quota_metrics
from .share import ShareCoordinator
from .transaction import register_metrics as register_transaction_metrics


def register_metrics(broker: Broker, detector: FailureDetector) -> None:
    """Have the broker's metrics tell of all of its parts."""
    metrics, store = broker.metrics, broker.store
    _register_build(metrics)
    register_authentication_metrics(metrics, broker.authentication)
    _register_group_metrics(metrics, broker.groups, broker.replicas)
    _register_cluster_metrics(metrics, store, broker.metadata, broker.controller, detector)
    tasks = broker.replicas.tasks
    register_compaction_metrics(metrics, broker.cleaner)
    _register_record_metrics(metrics, broker.delays, broker.queues, tasks, broker.clock)
    _register_share_metrics(metrics, broker.shares, broker.share_sessions)
    register_transaction_metrics(metrics, broker.transactions)
    register_quota_metrics(metrics, broker.quotas, broker.connection_rates, perf_counter)
    register_internal_log_metrics(metrics, [broker.transactions.log, *broker.groups.logs])
    broker.telemetry.register(metrics)
    _register_access_metrics(metrics, broker.access, broker.metadata)


def _register_build(metrics: Metrics) -> None:
    def read() -> Iterable[tuple[Sequence[str], float]]:
        from qbus.records import CODEC  # noqa: PLC0415 - only where metrics are served

        return [((__version__, platform.python_version(), CODEC), 1)]

    metrics.gauges_by(
        ["version", "python", "codec"], "build_info", "1, by the versions that run here.", read
    )


def _register_group_metrics(
    metrics: Metrics, groups: GroupCoordinator, replicas: ReplicaManager[ReplicaSessions]
) -> None:
    def end_offset(topic: str, index: int) -> int | None:
        partition = replicas.get_partition(topic, index)
        return None if partition is None else partition.visible_end

    gauge, counter = metrics.gauge, metrics.counter
    gauge("groups", "Number of consumer groups in memory.", lambda: groups.states().total())
    counter("group_rebalances", "Number of completed rebalances.", lambda: groups.rebalances)
    counter("offset_commits", "Number of offsets committed.", lambda: groups.commits)
    counter("offsets_expired", "Number of offsets expired.", lambda: groups.expired_offsets)
    gauge(
        "group_transactions",
        "Number of open transactions that have brought offsets to groups.",
        lambda: groups.transactions,
    )
    metrics.gauges_by(
        ["storage"],
        "offsets_storage",
        "1 for where committed offsets are kept: zookeeper (the metadata store), log, or returning "
        "(on the way from the log to the metadata store).",
        lambda: [((groups.storage.value,), 1)],
    )
    GroupLag(groups, end_offset).register(metrics)


def _register_record_metrics(
    metrics: Metrics,
    delays: DelayService,
    queues: QueueService,
    tasks: BackgroundTasks,
    clock: Clock,
) -> None:
    register_delay_metrics(metrics, delays, clock)
    register_queue_metrics(metrics, queues, tasks)


def _register_share_metrics(
    metrics: Metrics, shares: ShareCoordinator, sessions: ShareSessions
) -> None:
    gauge = metrics.gauge
    gauge("share_groups", "Number of share groups in memory.", lambda: shares.states().total())
    gauge("share_group_members", "Number of members of share groups.", lambda: shares.members)
    gauge("share_sessions", "Number of members that fetch from here.", lambda: len(sessions))


def _register_access_metrics(
    metrics: Metrics, access: AccessControl, metadata: MetadataCache
) -> None:
    metrics.counter(
        "authorizations_denied",
        "Number of times that a client asked for something it may not do.",
        lambda: access.denied,
    )
    metrics.gauge("acls", "Number of access rules (ACLs).", lambda: len(metadata.acls))
    audit = access.audit
    metrics.counter(
        "audit_events_dropped",
        "Number of events lost to the audit log: its queue or its disk was full.",
        lambda: 0 if audit is None else audit.dropped,
    )


def _register_cluster_metrics(
    metrics: Metrics,
    store: MetadataStore,
    metadata: MetadataCache,
    controller: Controller,
    detector: FailureDetector,
) -> None:
    metrics.gauge(
        "metadata_store_connected",
        "1 if the session with the metadata store is connected, else 0.",
        lambda: store.state is SessionState.CONNECTED,
    )
    metrics.timing(
        "metadata_store_seconds",
        "Duration of requests to the metadata store, in seconds.",
        store.timings,
    )
    metrics.gauge(
        "active_controller",
        "1 if this broker is the controller, else 0.",
        lambda: controller.is_active,
    )
    metrics.counter(
        "partition_state_changes",
        "Number of changes of leaders and in-sync replicas that this broker wrote as controller.",
        lambda: controller.elections,
    )
    metrics.counter(
        "brokers_found_dead",
        "Number of dead brokers detected before their sessions ended.",
        lambda: detector.noticed,
    )
    metrics.gauge(
        "leaderless_partitions",
        "Number of partitions without a live leader.",
        lambda: leaderless_partitions(metadata),
    )
