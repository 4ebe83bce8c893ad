"""The APIs that the clients use, and their versions: those of Kafka 3.0 and later.

Versions that name topics only by id (KIP-516) are left out, because topics mostly go by name.
"""

from collections.abc import Mapping

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey

SPOKEN: Mapping[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (7, 12),
    ApiKey.LIST_OFFSETS: (4, 8),
    ApiKey.METADATA: (5, 13),
    ApiKey.OFFSET_COMMIT: (7, 9),
    ApiKey.OFFSET_FETCH: (8, 9),
    ApiKey.FIND_COORDINATOR: (4, 6),
    ApiKey.JOIN_GROUP: (5, 9),
    ApiKey.HEARTBEAT: (3, 4),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.SYNC_GROUP: (3, 5),
    ApiKey.DESCRIBE_GROUPS: (4, 6),
    ApiKey.LIST_GROUPS: (3, 5),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (4, 7),
    ApiKey.DELETE_TOPICS: (6, 6),
    ApiKey.DELETE_RECORDS: (1, 2),
    ApiKey.INIT_PRODUCER_ID: (1, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (2, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (2, 4),
    ApiKey.END_TXN: (2, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (3, 5),
    ApiKey.DESCRIBE_CONFIGS: (3, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (1, 3),
    ApiKey.DELETE_GROUPS: (1, 2),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_DELAYED: (0, 0),
    ApiKey.QUEUE_OFFSETS: (0, 0),
}

SPOKEN_BY_ID: Mapping[int, tuple[int, int]] = {
    ApiKey.FETCH: (13, 16),
    ApiKey.OFFSET_COMMIT: (10, 10),
    ApiKey.OFFSET_FETCH: (10, 10),
}
"""Versions that name topics by id, for requests that must not reach another topic of that name."""


def highest_common(
    api: ApiKey,
    served: Mapping[int, tuple[int, int]],
    spoken: Mapping[int, tuple[int, int]] = SPOKEN,
) -> int:
    """Return the highest version of ``api`` that both sides speak; ``served``: the broker's ranges.

    Raises :class:`~qbus.errors.ApiError` UNSUPPORTED_VERSION when there is none.
    """
    low, high = spoken[api]
    their_low, their_high = served.get(api, (0, -1))
    version = min(high, their_high)
    if version < max(low, their_low):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{api.name}: the broker serves {their_low} to {their_high}, not {low} to {high}",
        )
    return version
