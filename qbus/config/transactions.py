"""Broker configuration: transactions."""

from qbus.config.settings import Settings, integer

_DAY_MS = 24 * 60 * 60 * 1000


def not_zero(count: int) -> None:
    """Check a number that is -1 where it has a default that depends on other things."""
    if count == 0:
        raise ValueError("-1, or at least 1")


class TransactionKeys(Settings):
    """The settings of the transaction coordinator and of its internal topic."""

    __slots__ = ()

    transaction_max_timeout_ms = integer(
        15 * 60_000,
        "Maximum transaction time-out that a producer may ask for. A transaction that is open for "
        "longer than its time-out is aborted.",
        unit="ms",
        at_least=1,
    )
    transactional_id_expiration_ms = integer(
        7 * _DAY_MS,
        "A transactional id is forgotten when its producer has done nothing for this time.",
        unit="ms",
        at_least=1,
    )
    transaction_state_log_num_partitions = integer(
        -1,
        "Number of partitions of the internal topic __transaction_state, when it is made. "
        "-1: 50 in a cluster, 5 with the embedded metadata store.",
        at_least=-1,
        static=True,
        check=not_zero,
    )
    transaction_state_log_replication_factor = integer(
        -1,
        "Replication factor of the internal topic __transaction_state, when it is made. Until "
        "there are that many brokers, transactions cannot be used. "
        "-1: 3 in a cluster, 1 with the embedded metadata store.",
        at_least=-1,
        static=True,
        check=not_zero,
    )
    transaction_state_log_min_isr = integer(
        2,
        "min.insync.replicas of the internal topic __transaction_state, when it is made; it counts "
        "as no more than the number of replicas.",
        at_least=1,
        static=True,
    )
    transaction_state_log_segment_bytes = integer(
        100 * 1024 * 1024,
        "segment.bytes of the internal topic __transaction_state, when it is made.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
