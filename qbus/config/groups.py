"""Broker configuration: groups of both protocols and their offsets, and share groups."""

from qbus.config.settings import Settings, integer, long, string, strings
from qbus.config.transactions import not_zero


class GroupKeys(Settings):
    """The settings of groups and of their offsets."""

    __slots__ = ()

    group_initial_rebalance_delay_ms = integer(
        3_000,
        "How long the first rebalance of an empty group waits for further members.",
        unit="ms",
        at_least=0,
        static=True,
    )
    group_min_session_timeout_ms = integer(
        6_000,
        "Minimum session time-out that a member may request.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_session_timeout_ms = integer(
        30 * 60_000,
        "Maximum session time-out that a member may request.",
        unit="ms",
        at_least=1,
        static=True,
    )
    group_max_size = integer(
        2**31 - 1, "Maximum number of members of a group.", at_least=1, static=True
    )
    offsets_retention_minutes = integer(
        7 * 24 * 60,
        "Committed offsets are deleted this long after the group's last member left, or after the "
        "last commit if the group never had members.",
        unit="minutes",
        at_least=1,
        static=True,
    )
    offsets_retention_check_interval_ms = long(
        10 * 60_000,
        "How often expired offsets are searched for and deleted.",
        unit="ms",
        at_least=1,
        static=True,
    )
    offsets_storage = string(
        "zookeeper",
        "Where committed offsets are kept: in the metadata store (zookeeper), or as records of the "
        "internal topic __consumer_offsets (log). What counts is the value that the controller "
        "has: when it changes, all groups' offsets are moved, while they are in use.",
        choices=("zookeeper", "log"),
    )
    offsets_topic_num_partitions = integer(
        -1,
        "Number of partitions of the internal topic __consumer_offsets, when it is made. "
        "-1: 50 in a cluster, 5 with the embedded metadata store.",
        at_least=-1,
        static=True,
        check=not_zero,
    )
    offsets_topic_replication_factor = integer(
        -1,
        "Replication factor of the internal topic __consumer_offsets, when it is made. Until there "
        "are that many brokers, groups cannot be used with offsets.storage=log. "
        "-1: 3 in a cluster, 1 with the embedded metadata store.",
        at_least=-1,
        static=True,
        check=not_zero,
    )
    offsets_topic_min_isr = integer(
        2,
        "min.insync.replicas of the internal topic __consumer_offsets, when it is made; it counts "
        "as no more than the number of replicas.",
        at_least=1,
        static=True,
    )
    offsets_topic_segment_bytes = integer(
        100 * 1024 * 1024,
        "segment.bytes of the internal topic __consumer_offsets, when it is made.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    offsets_zookeeper_layout = string(
        "partition",
        "How committed offsets lie in the metadata store: each in a node of its own (partition), "
        "as other programs read them, or all of a group and topic in one (topic), which is written "
        "once for a commit of many partitions. Both are read; a topic changes with its next "
        "commit.",
        choices=("partition", "topic"),
        static=True,
    )
    offset_metadata_max_bytes = integer(
        4096,
        "Maximum size of the metadata that a client stores with an offset.",
        unit="bytes",
        at_least=0,
        static=True,
    )


def _assignors(names: tuple[str, ...]) -> None:
    if not names or len({*names}) < len(names) or not {*names} <= {"uniform", "range"}:
        raise ValueError("uniform, range, or both")


class ConsumerKeys(Settings):
    """The settings of a broker that concern groups of the consumer protocol (KIP-848)."""

    __slots__ = ()

    group_consumer_session_timeout_ms = integer(
        45_000,
        "A member that sends no heartbeat for this long is removed from its group.",
        unit="ms",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms = integer(
        45_000, "Minimum of consumer.session.timeout.ms of a group.", unit="ms", at_least=1
    )
    group_consumer_max_session_timeout_ms = integer(
        60_000, "Maximum of consumer.session.timeout.ms of a group.", unit="ms", at_least=1
    )
    group_consumer_heartbeat_interval_ms = integer(
        5_000,
        "How often members of groups of the consumer protocol are to send heartbeats.",
        unit="ms",
        at_least=1,
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5_000, "Minimum of consumer.heartbeat.interval.ms of a group.", unit="ms", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15_000, "Maximum of consumer.heartbeat.interval.ms of a group.", unit="ms", at_least=1
    )
    group_consumer_max_size = integer(
        2**31 - 1,
        "Maximum number of members of a group of the consumer protocol.",
        at_least=1,
        static=True,
    )
    group_consumer_assignors = strings(
        ("uniform", "range"),
        "The assignors that members may ask for; the first is used if none does. uniform: evenly, "
        "moving as little as possible; range: neighbouring partitions, the same of all topics.",
        check=_assignors,
        static=True,
    )
    group_consumer_migration_policy = string(
        "bidirectional",
        "Whether a group with members may change its protocol: from the classic to the consumer "
        "protocol when a member of that joins (upgrade), back when the last one is gone "
        "(downgrade), both (bidirectional), or neither (disabled).",
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
        static=True,
    )


class ShareKeys(Settings):
    """The settings of a broker that concern share groups."""

    __slots__ = ()

    group_share_session_timeout_ms = integer(
        45_000,
        "A member that sends no heartbeat for this long is removed from its share group.",
        unit="ms",
        at_least=1,
    )
    group_share_min_session_timeout_ms = integer(
        45_000, "Minimum of share.session.timeout.ms of a group.", unit="ms", at_least=1
    )
    group_share_max_session_timeout_ms = integer(
        60_000, "Maximum of share.session.timeout.ms of a group.", unit="ms", at_least=1
    )
    group_share_heartbeat_interval_ms = integer(
        5_000, "How often members of share groups are to send heartbeats.", unit="ms", at_least=1
    )
    group_share_min_heartbeat_interval_ms = integer(
        5_000, "Minimum of share.heartbeat.interval.ms of a group.", unit="ms", at_least=1
    )
    group_share_max_heartbeat_interval_ms = integer(
        15_000, "Maximum of share.heartbeat.interval.ms of a group.", unit="ms", at_least=1
    )
    group_share_max_size = integer(
        10_000, "Maximum number of members of a share group.", at_least=1
    )
    group_share_record_lock_duration_ms = integer(
        30_000,
        "How long a record that was given to a member of a share group is given to nobody else.",
        unit="ms",
        at_least=1,
    )
    group_share_min_record_lock_duration_ms = integer(
        15_000, "Minimum of share.record.lock.duration.ms of a group.", unit="ms", at_least=1
    )
    group_share_max_record_lock_duration_ms = integer(
        60_000, "Maximum of share.record.lock.duration.ms of a group.", unit="ms", at_least=1
    )
    group_share_delivery_count_limit = integer(
        5, "How often a record is given out to a share group at most. 0: no limit.", at_least=0
    )
    group_share_min_delivery_count_limit = integer(
        0, "Minimum of share.delivery.count.limit of a group.", at_least=0
    )
    group_share_max_delivery_count_limit = integer(
        1_000, "Maximum of share.delivery.count.limit of a group.", at_least=1
    )
    group_share_partition_max_record_locks = integer(
        2_000,
        "How many records of a partition may be given out to a share group at a time.",
        at_least=1,
    )
    group_share_min_partition_max_record_locks = integer(
        100, "Minimum of share.partition.max.record.locks of a group.", at_least=1
    )
    group_share_max_partition_max_record_locks = integer(
        4_000, "Maximum of share.partition.max.record.locks of a group.", at_least=1
    )
    group_share_max_share_sessions = integer(
        10_000, "Maximum number of share sessions of a broker: members that fetch.", at_least=1
    )
