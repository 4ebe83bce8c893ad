"""Broker configuration: replication, leader elections and shutdown."""

from qbus.config.settings import Settings, boolean, integer, long, string
from qbus.config.topic import FOREVER

_MIB = 1024 * 1024


class ReplicationKeys(Settings):
    """The settings of followers, throttles, the controller and controlled shutdown."""

    __slots__ = ()

    replica_lag_time_max_ms = long(
        30_000,
        "A replica that has not caught up with its leader for this time leaves the ISR.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_fetch_min_bytes = integer(
        1,
        "Minimum size of a leader's response to a follower's fetch.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_max_bytes = integer(
        _MIB,
        "Maximum that a follower fetches of one partition at once; a larger batch is sent anyway.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_response_max_bytes = integer(
        10 * _MIB,
        "Maximum that a follower fetches from one leader at once, over all partitions.",
        unit="bytes",
        at_least=0,
        static=True,
    )
    replica_fetch_wait_max_ms = integer(
        500,
        "How long a leader without new records holds a follower's fetch.",
        unit="ms",
        at_least=0,
        static=True,
    )
    replica_fetch_backoff_ms = integer(
        1_000,
        "Maximum pause of a follower after a failed fetch.",
        unit="ms",
        at_least=0,
        static=True,
    )
    replica_socket_timeout_ms = integer(
        30_000,
        "How long a follower waits for a leader's response, beyond replica.fetch.wait.max.ms.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_socket_receive_buffer_bytes = integer(
        64 * 1024,
        "Receive buffer of a follower's socket. -1: the system's default.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        5_000,
        "How often the high watermarks are checkpointed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    replica_selector_class = string(
        "",
        "Which replica serves a consumer. Empty: the leader. rack, or Kafka's class name for it: "
        "an in-sync replica in the consumer's rack, if there is one.",
        choices=("", "rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        static=True,
    )
    leader_replication_throttled_rate = long(
        FOREVER,
        "Bytes per second that this broker, as a leader, sends to throttled replicas.",
        at_least=0,
    )
    follower_replication_throttled_rate = long(
        FOREVER,
        "Bytes per second that this broker fetches for its throttled replicas.",
        at_least=0,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        FOREVER,
        "Bytes per second that this broker copies when replicas move between its directories.",
        at_least=0,
    )
    auto_leader_rebalance_enable = boolean(
        True,
        "Whether the controller regularly makes preferred replicas leaders again.",
        static=True,
    )
    leader_imbalance_check_interval_seconds = long(
        300,
        "How often the controller checks whether preferred replicas lead.",
        at_least=1,
        static=True,
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "Percentage of a broker's preferred partitions that other brokers may lead before the "
        "controller makes it their leader again.",
        at_least=0,
        static=True,
    )
    crash_detection_enable = boolean(
        True,
        "Whether other brokers take over at once from a broker whose process has died: its "
        "connection broke and its address refuses new ones. Otherwise they wait for the end of its "
        "ZooKeeper session.",
        static=True,
    )
    controlled_shutdown_enable = boolean(
        True,
        "Whether a broker that shuts down first has other replicas elected for its partitions.",
        static=True,
    )
    controlled_shutdown_max_retries = integer(
        3,
        "Maximum number of retries of that election.",
        at_least=0,
        static=True,
    )
    controlled_shutdown_retry_backoff_ms = long(
        5_000,
        "Maximum pause before such a retry.",
        unit="ms",
        at_least=0,
        static=True,
    )
