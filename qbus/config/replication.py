"""Broker configuration: replicas, who leads them, and how brokers take over from each other."""

from qbus.config.settings import Settings, boolean, integer, long, string
from qbus.config.topic import FOREVER

_MIB = 1024 * 1024


class ReplicationKeys(Settings):
    """How replicas follow their leaders, and what the controller does by itself."""

    __slots__ = ()

    replica_lag_time_max_ms = long(
        30_000,
        "A replica that has not had everything for so long is no longer in sync.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_fetch_min_bytes = integer(
        1,
        "How much a replica waits for when it asks its leader.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_max_bytes = integer(
        _MIB,
        "How much of one partition a replica asks for at once; a larger batch comes all the same.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_response_max_bytes = integer(
        10 * _MIB,
        "How much of all partitions of one leader a replica asks for at once.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_wait_max_ms = integer(
        500,
        "How long a leader that has nothing new lets a replica wait.",
        unit="ms",
        at_least=0,
        static=True,
    )
    replica_fetch_backoff_ms = integer(
        1_000,
        "How long a replica waits after its leader failed, before it asks again.",
        unit="ms",
        at_least=0,
        static=True,
    )
    replica_socket_timeout_ms = integer(
        30_000,
        "How long a replica waits for its leader's answer beyond what it let it wait.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_socket_receive_buffer_bytes = integer(
        64 * 1024,
        "The system's receive buffer of a replica's connection. -1: the system decides.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        5_000,
        "How often is noted up to where partitions are acknowledged.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_selector_class = string(
        "",
        "Who serves consumers: rack (a replica in sync of the consumer's own rack, also by the "
        "name of Kafka's class for that), or, if empty, the leader alone.",
        choices=("", "rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        static=True,
    )
    leader_replication_throttled_rate = long(
        FOREVER,
        "Bytes a second that this broker sends to the throttled replicas that follow it.",
        at_least=0,
    )
    follower_replication_throttled_rate = long(
        FOREVER,
        "Bytes a second that this broker's throttled replicas ask of their leaders.",
        at_least=0,
    )
    auto_leader_rebalance_enable = boolean(
        True,
        "Whether preferred replicas are made leaders again from time to time.",
        static=True,
    )
    leader_imbalance_check_interval_seconds = long(
        300,
        "How often is looked whether preferred replicas lead.",
        at_least=1,
        static=True,
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "How many of the partitions that a broker should lead may be led by others, in percent, "
        "until that is changed.",
        at_least=0,
        static=True,
    )
    crash_detection_enable = boolean(
        True,
        "Have others take over at once from a broker whose process has died: one whose connection "
        "broke and whose address refuses new ones. Otherwise the end of its session is waited for.",
        static=True,
    )
    controlled_shutdown_enable = boolean(
        True,
        "Whether a broker that stops has others lead its partitions first.",
        static=True,
    )
    controlled_shutdown_max_retries = integer(
        3,
        "How often a broker that stops tries again to find other leaders.",
        at_least=0,
        static=True,
    )
    controlled_shutdown_retry_backoff_ms = long(
        5_000,
        "How long a broker that stops waits before it tries that again, at most.",
        unit="ms",
        at_least=0,
        static=True,
    )
