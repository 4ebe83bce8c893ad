"""Which APIs Qbus speaks, and at which versions.

Versions and the first flexible one are those of Kafka 4.4's message definitions, cut to what Qbus
serves whole. Message classes are imported when first asked for: a broker that is asked for Produce
and Fetch alone never loads the rest.
"""

from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module
from types import MappingProxyType
from typing import Final


class ApiKey(IntEnum):
    """The number of an API on the wire, under Kafka's name."""

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
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api:
    """One API: its key, its messages, and the versions in which Qbus speaks it.

    ``first_flexible`` is the first version with compact lengths and tagged fields (KIP-482), None if
    there is none. ``advertised_min`` is below ``min_version`` where clients want to see a version
    that a broker then refuses.
    """

    __slots__ = (
        "_request",
        "_response",
        "advertised_min",
        "first_flexible",
        "key",
        "max_version",
        "min_version",
    )

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        first_flexible: int | None,
        *,
        advertised_min: int | None = None,
    ) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.first_flexible = first_flexible
        self.advertised_min = min_version if advertised_min is None else advertised_min
        self._request: type | None = None
        self._response: type | None = None

    @property
    def request(self) -> type:
        """The class of its requests."""
        if self._request is None:
            self._load()
        assert self._request is not None
        return self._request

    @property
    def response(self) -> type:
        """The class of its responses."""
        if self._response is None:
            self._load()
        assert self._response is not None
        return self._response

    def has_version(self, version: int) -> bool:
        """Whether Qbus speaks ``version``."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether ``version`` has compact lengths and tagged fields."""
        return self.first_flexible is not None and version >= self.first_flexible

    def _load(self) -> None:
        name = self.key.name.lower()
        module = import_module(f".messages.{name}", __package__)
        prefix = name.title().replace("_", "")
        self._request = getattr(module, f"{prefix}Request")
        self._response = getattr(module, f"{prefix}Response")

    def __repr__(self) -> str:
        return f"<Api {self.key.name} {self.min_version}-{self.max_version}>"


def _table(*apis: Api) -> Mapping[ApiKey, Api]:
    return MappingProxyType({api.key: api for api in apis})


API: Final = _table(
    # Produce 0-2 carry older record formats: librdkafka before 2.12 falls back to uncompressed or
    # older batches when they are not advertised.
    #                                min max flexible
    Api(ApiKey.PRODUCE,                   3, 13, 9, advertised_min=0),
    Api(ApiKey.FETCH,                     4, 18, 12),
    Api(ApiKey.LIST_OFFSETS,              1, 11, 6),
    Api(ApiKey.METADATA,                  0, 13, 9),
    Api(ApiKey.OFFSET_COMMIT,             2, 10, 8),
    Api(ApiKey.OFFSET_FETCH,              1, 10, 6),
    Api(ApiKey.FIND_COORDINATOR,          0,  6, 3),
    Api(ApiKey.JOIN_GROUP,                0,  9, 6),
    Api(ApiKey.HEARTBEAT,                 0,  4, 4),
    Api(ApiKey.LEAVE_GROUP,               0,  5, 4),
    Api(ApiKey.SYNC_GROUP,                0,  5, 4),
    Api(ApiKey.DESCRIBE_GROUPS,           0,  6, 5),
    Api(ApiKey.LIST_GROUPS,               0,  5, 3),
    Api(ApiKey.API_VERSIONS,              0,  5, 3),
    Api(ApiKey.CREATE_TOPICS,             2,  7, 5),
    Api(ApiKey.DELETE_TOPICS,             1,  6, 4),
    Api(ApiKey.DELETE_RECORDS,            0,  2, 2),
    Api(ApiKey.INIT_PRODUCER_ID,          0,  5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH,   2,  4, 4),
    Api(ApiKey.DESCRIBE_CONFIGS,          1,  4, 4),
    Api(ApiKey.ALTER_CONFIGS,             0,  2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS,         1,  4, 2),
    Api(ApiKey.CREATE_PARTITIONS,         0,  3, 2),
    Api(ApiKey.DELETE_GROUPS,             0,  2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0,  1, 1),
    Api(ApiKey.OFFSET_DELETE,             0,  0, None),
    Api(ApiKey.DESCRIBE_CLUSTER,          0,  2, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS,        0,  0, 0),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,  0, 0),
)  # fmt: skip
"""Every API that Qbus speaks, by its key."""
