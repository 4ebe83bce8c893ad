"""The APIs and their versions, and where their messages are declared.

The broker answers ApiVersions from the table. Message classes are imported at their
first use, so that a broker starts faster.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Final

from qbus.wire.declare import Struct


class ApiKey(IntEnum):
    """The number of an API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    DESCRIBE_DELAYED = 10100  # Qbus's own
    QUEUE_OFFSETS = 10101  # Qbus's own
    END_GROUP_TRANSACTION = 10102  # Qbus's own


class Api:
    """One API: its served versions and its two messages.

    ``advertised_min`` is the first version that ApiVersions reports. For Produce it is 0 although 3
    is the first one served, as in Kafka: some clients derive features from old versions.
    ``is_advertised``: ApiVersions reports it; otherwise it is answered, by a refusal, where a
    client asks all the same.
    """

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        advertised_min: int | None = None,
        *,
        is_advertised: bool = True,
    ) -> None:
        self.is_advertised = is_advertised
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.advertised_min = min_version if advertised_min is None else advertised_min

    @cached_property
    def request(self) -> type[Struct]:
        """The class of the requests."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Struct]:
        """The class of the responses."""
        return self._message("Response")

    @cached_property
    def first_flexible(self) -> int:
        """The first version with compact lengths and tagged fields."""
        return self.request.first_flexible

    def _message(self, kind: str) -> type[Struct]:
        name = self.key.name.lower()
        module = import_module(f".messages.{name}", __package__)
        cls: type[Struct] = getattr(module, name.title().replace("_", "") + kind)
        return cls


_APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, advertised_min=0),
    Api(ApiKey.FETCH, 4, 18),
    Api(ApiKey.LIST_OFFSETS, 1, 11),
    Api(ApiKey.METADATA, 0, 13),
    Api(ApiKey.OFFSET_COMMIT, 2, 10),
    Api(ApiKey.OFFSET_FETCH, 1, 10),
    Api(ApiKey.FIND_COORDINATOR, 0, 6),
    Api(ApiKey.JOIN_GROUP, 0, 9),
    Api(ApiKey.HEARTBEAT, 0, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5),
    Api(ApiKey.SYNC_GROUP, 0, 5),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6),
    Api(ApiKey.LIST_GROUPS, 0, 5),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1),
    Api(ApiKey.API_VERSIONS, 0, 5),
    Api(ApiKey.CREATE_TOPICS, 2, 7),
    Api(ApiKey.DELETE_TOPICS, 1, 6),
    Api(ApiKey.DELETE_RECORDS, 0, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
    Api(ApiKey.END_TXN, 0, 5),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5),
    Api(ApiKey.DESCRIBE_ACLS, 0, 3),
    Api(ApiKey.CREATE_ACLS, 0, 3),
    Api(ApiKey.DELETE_ACLS, 0, 3),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4),
    Api(ApiKey.ALTER_CONFIGS, 0, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3),
    Api(ApiKey.DELETE_GROUPS, 0, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
    Api(ApiKey.OFFSET_DELETE, 0, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, is_advertised=False),
    Api(ApiKey.UPDATE_FEATURES, 0, 2),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1),
    Api(ApiKey.SHARE_FETCH, 1, 2),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0),
    Api(ApiKey.DESCRIBE_DELAYED, 0, 0),
    Api(ApiKey.QUEUE_OFFSETS, 0, 0),
    Api(ApiKey.END_GROUP_TRANSACTION, 0, 0),
)

API: Final[Mapping[ApiKey, Api]] = {api.key: api for api in _APIS}
"""The APIs that the broker serves."""
