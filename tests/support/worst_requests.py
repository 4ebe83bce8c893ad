"""The request of about 1 MB of each API that costs its broker the most, as far as we know.

What is dear differs: many tiny elements, the same partition or group again and again (each a
question of rights, a look-up, a reading of a log), a few bytes that are answered by thousands, huge
counts and ranges. An API has several requests where it has several of these.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from qbus.wire import API, ApiKey, Struct, encode_request
from qbus.wire.declare import fields

SIZE: Final = 1 << 20
MOST_ITEMS: Final = 100_000
"""So many elements are taken by the decoder; more are refused before they are read."""

TOPIC: Final = "t"
"""A topic that exists, with three partitions; the first has some records."""

GROUP: Final = "g"
"""A share group that exists."""

Fields = dict[str, Any]


class Worst(NamedTuple):
    """A request: its API and version, what is dear about it, and its fields."""

    api: ApiKey
    version: int
    why: str
    fields: Fields

    @property
    def title(self) -> str:
        """A name for people."""
        return f"{self.api.name} v{self.version}, {self.why}"

    def frame(self, ids: dict[str, bytes]) -> bytes:
        """Its bytes without their length; ``ids``: of topics, for those that it names so."""
        request = _build(API[self.api].request, self.fields, ids)
        parts = encode_request(self.api, self.version, 7, "worst", request)
        return b"".join(map(bytes, parts))[4:]


class IdOf(str):
    """Stands for the id of a topic of that name."""

    __slots__ = ()


def worst_requests(share: int = 1) -> Iterator[Worst]:
    """All of them, by API; ``share``: that part of their elements, for tests that hurry."""
    for key, requests in TABLE.items():
        for version, why, made in requests:
            _share.append(share)
            try:
                yield Worst(key, version, why, made())
            finally:
                _share.pop()


_share: Final = [1]


def _scaled(count: int) -> int:
    return count // _share[-1]


def names(count: int) -> list[str]:
    """Short names that nothing has."""
    return [f"a{number:06x}" for number in range(_scaled(count))]


def _same(one: Any, count: int) -> list[Any]:
    return [one] * _scaled(count)


def _numbers(count: int) -> list[int]:
    return list(range(_scaled(count)))


def _build(kind: type[Struct], values: Fields, ids: dict[str, bytes]) -> Struct:
    kinds = {one.name: one for one in fields(kind)}

    def made(name: str, value: Any) -> Any:
        part = kinds[name].kind
        if isinstance(value, IdOf):
            return ids[value]
        if isinstance(part, type) and isinstance(value, list):
            return [_build(part, one, ids) for one in value]
        if isinstance(part, type) and isinstance(value, dict):
            return _build(part, value, ids)
        return value

    return kind(**{name: made(name, value) for name, value in values.items()})


def _each(name: str, values: list[Any], **others: Any) -> list[Fields]:
    return [{name: value, **others} for value in values]


def _again(count: int, **part: Any) -> list[Fields]:
    return [part] * _scaled(count)


def _topics(count: int, inner: str, part: Any, name: str = "name") -> list[Fields]:
    """Topics that do not exist, of one partition each."""
    return [{name: topic, inner: [part]} for topic in names(count)]


def _indexes(name: str, count: int, **others: Any) -> list[Fields]:
    return [{name: index, **others} for index in range(_scaled(count))]


_PRODUCER: Final = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_HUGE: Final = 2**62
_ANY: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_RULE: Final = {
    "resource_type": 2,
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_TX_V3: Final = {f"v3_and_below_{name}": value for name, value in _PRODUCER.items()}
_SESSION: Final = {"group_id": GROUP, "member_id": _MEMBER, "share_session_epoch": 0}


def _fetch(topics: list[Fields], **others: Any) -> Fields:
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20}
    return {**limits, "topics": topics, **others}


def _wanted(index: int, offset: int = 0) -> Fields:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}


def _joined(count: int) -> Fields:
    return {
        "group_id": "joined",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": _each("name", names(count), metadata=b""),
    }


def _acknowledged(batches: list[Fields]) -> list[Fields]:
    return [
        {
            "topic_id": IdOf(TOPIC),
            "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}],
        }
    ]


def _range(first: int, last: int, *types: int) -> Fields:
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}


_Made = tuple[int, str, Callable[[], Fields]]
_K: Final = ApiKey

TABLE: Final[dict[ApiKey, list[_Made]]] = {
    _K.PRODUCE: [
        (
            *(9, "the same partition again and again, without records"),
            lambda: {
                "acks": 1,
                "timeout_ms": 1000,
                "topic_data": [
                    {"name": TOPIC, "partition_data": _again(99_000, index=0, records=b"")}
                ],
            },
        ),
        (
            *(9, "topics that do not exist"),
            lambda: {
                "acks": 1,
                "timeout_ms": 1000,
                "topic_data": _topics(49_000, "partition_data", {"index": 0, "records": b""}),
            },
        ),
    ],
    _K.FETCH: [
        (
            *(4, "the same partition again and again"),
            lambda: _fetch([{"topic": TOPIC, "partitions": _again(65_000, **_wanted(0))}]),
        ),
        (
            *(4, "the same partition again and again, at its end"),
            lambda: _fetch([{"topic": TOPIC, "partitions": _again(65_000, **_wanted(1))}]),
        ),
        (
            *(4, "partitions that do not exist"),
            lambda: _fetch(
                [
                    {
                        "topic": TOPIC,
                        "partitions": [_wanted(index) for index in range(3, _scaled(65_000))],
                    }
                ]
            ),
        ),
        (
            *(17, "the same partition again and again, led in another epoch"),
            lambda: _fetch(
                [
                    {
                        "topic_id": IdOf(TOPIC),
                        "partitions": _again(30_000, **_wanted(0), current_leader_epoch=7),
                    }
                ]
            ),
        ),
        (
            *(12, "topics that do not exist, as a follower"),
            lambda: _fetch(_topics(21_000, "partitions", _wanted(0), "topic"), replica_id=2),
        ),
    ],
    _K.LIST_OFFSETS: [
        (
            *(1, "the same partition again and again, by time"),
            lambda: {
                "replica_id": -1,
                "topics": [
                    {"name": TOPIC, "partitions": _again(80_000, partition_index=0, timestamp=1)}
                ],
            },
        ),
        (
            *(1, "topics that do not exist"),
            lambda: {
                "replica_id": -1,
                "topics": _topics(41_000, "partitions", {"partition_index": 0, "timestamp": 1}),
            },
        ),
        (
            *(1, "partitions that do not exist"),
            lambda: {
                "replica_id": -1,
                "topics": [
                    {"name": TOPIC, "partitions": _indexes("partition_index", 80_000, timestamp=1)}
                ],
            },
        ),
    ],
    _K.METADATA: [
        (
            *(9, "topics that do not exist"),
            lambda: {
                "topics": _each("name", names(99_000)),
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
            },
        ),
        (
            *(9, "the same topic again and again"),
            lambda: {
                "topics": _again(99_000, name=TOPIC),
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
            },
        ),
        (
            *(12, "topics by ids that do not exist"),
            lambda: {
                "topics": [
                    {"name": None, "topic_id": number.to_bytes(16)}
                    for number in range(1, _scaled(55_000))
                ]
            },
        ),
    ],
    _K.OFFSET_COMMIT: [
        (
            *(2, "the same partition again and again"),
            lambda: {
                "group_id": "committed",
                "generation_id_or_member_epoch": -1,
                "topics": [
                    {
                        "name": TOPIC,
                        "partitions": _again(70_000, partition_index=0, committed_offset=1),
                    }
                ],
            },
        ),
        (
            *(2, "topics that do not exist"),
            lambda: {
                "group_id": "committed",
                "generation_id_or_member_epoch": -1,
                "topics": _topics(
                    38_000, "partitions", {"partition_index": 0, "committed_offset": 1}
                ),
            },
        ),
    ],
    _K.OFFSET_FETCH: [
        (
            *(7, "partitions of which nothing is committed"),
            lambda: {
                "group_id": "fetched",
                "topics": [{"name": TOPIC, "partition_indexes": _numbers(99_000)}],
                "require_stable": True,
            },
        ),
        (
            *(7, "topics that do not exist"),
            lambda: {"group_id": "fetched", "topics": _topics(49_000, "partition_indexes", 0)},
        ),
        (
            *(8, "groups that do not exist, all that they committed"),
            lambda: {"groups": _each("group_id", names(99_000), topics=None)},
        ),
    ],
    _K.FIND_COORDINATOR: [
        (4, "groups", lambda: {"key_type": 0, "coordinator_keys": names(99_000)}),
        (4, "transactions", lambda: {"key_type": 1, "coordinator_keys": names(99_000)}),
        (
            4,
            "of a type that there is not",
            lambda: {"key_type": 9, "coordinator_keys": names(99_000)},
        ),
    ],
    _K.JOIN_GROUP: [(9, "many protocols", lambda: _joined(99_000))],
    _K.HEARTBEAT: [(4, "a long name", lambda: {"group_id": "g" * 32_000})],
    _K.LEAVE_GROUP: [
        (
            *(5, "many members that are not in it"),
            lambda: {"group_id": "left", "members": _each("member_id", names(99_000))},
        )
    ],
    _K.SYNC_GROUP: [
        (
            *(5, "many assignments"),
            lambda: {
                "group_id": "synced",
                "generation_id": 1,
                "member_id": "m",
                "assignments": _each("member_id", names(99_000), assignment=b""),
            },
        )
    ],
    _K.DESCRIBE_GROUPS: [
        (
            *(6, "groups that do not exist"),
            lambda: {"groups": names(99_000), "include_authorized_operations": True},
        ),
        (
            *(5, "groups that do not exist, which are dead"),
            lambda: {"groups": names(99_000), "include_authorized_operations": True},
        ),
    ],
    _K.LIST_GROUPS: [(5, "many filters", lambda: {"states_filter": names(99_000)})],
    _K.SASL_HANDSHAKE: [(1, "a long name", lambda: {"mechanism": "P" * 32_000})],
    _K.API_VERSIONS: [
        (
            *(3, "long names"),
            lambda: {"client_software_name": "a" * 32_000, "client_software_version": "1"},
        )
    ],
    _K.CREATE_TOPICS: [
        (
            *(7, "many topics"),
            lambda: {
                "topics": _each("name", names(60_000), num_partitions=1, replication_factor=1),
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
        (
            *(7, "the same topic again and again"),
            lambda: {
                "topics": _again(60_000, name="created", num_partitions=1, replication_factor=1),
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
        (
            *(7, "more partitions than anybody has"),
            lambda: {
                "topics": [
                    {"name": "created", "num_partitions": 2**31 - 1, "replication_factor": 1}
                ],
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
        (
            *(7, "many assignments"),
            lambda: {
                "topics": [
                    {
                        "name": "created",
                        "num_partitions": -1,
                        "replication_factor": -1,
                        "assignments": _indexes("partition_index", 49_000, broker_ids=[1]),
                    }
                ],
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
        (
            *(7, "one assignment to many brokers"),
            lambda: {
                "topics": [
                    {
                        "name": "created",
                        "num_partitions": -1,
                        "replication_factor": -1,
                        "assignments": [{"partition_index": 0, "broker_ids": _numbers(99_000)}],
                    }
                ],
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
        (
            *(7, "many keys of configuration"),
            lambda: {
                "topics": [
                    {
                        "name": "created",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "configs": _each("name", names(90_000), value="1"),
                    }
                ],
                "timeout_ms": 1000,
                "validate_only": True,
            },
        ),
    ],
    _K.DELETE_TOPICS: [
        (
            *(5, "topics that do not exist"),
            lambda: {"topic_names": names(99_000), "timeout_ms": 1000},
        ),
        (
            *(5, "the same topic again and again"),
            lambda: {"topic_names": _same(TOPIC, 99_000), "timeout_ms": 1000},
        ),
    ],
    _K.DELETE_RECORDS: [
        (
            *(1, "the same partition again and again"),
            lambda: {
                "timeout_ms": 1000,
                "topics": [
                    {"name": TOPIC, "partitions": _again(80_000, partition_index=0, offset=0)}
                ],
            },
        ),
        (
            *(1, "topics that do not exist"),
            lambda: {
                "timeout_ms": 1000,
                "topics": _topics(41_000, "partitions", {"partition_index": 0, "offset": 0}),
            },
        ),
    ],
    _K.INIT_PRODUCER_ID: [(5, "a long name", lambda: {"transactional_id": "x" * 32_000})],
    _K.OFFSET_FOR_LEADER_EPOCH: [
        (
            *(4, "the same partition again and again"),
            lambda: {
                "replica_id": -1,
                "topics": [
                    {
                        "topic": TOPIC,
                        "partitions": _again(
                            80_000, partition=0, current_leader_epoch=-1, leader_epoch=0
                        ),
                    }
                ],
            },
        ),
        (
            *(4, "topics that do not exist"),
            lambda: {
                "replica_id": -1,
                "topics": _topics(
                    40_000,
                    "partitions",
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
                    "topic",
                ),
            },
        ),
    ],
    _K.ADD_PARTITIONS_TO_TXN: [
        (
            *(3, "the same partition again and again"),
            lambda: {
                **_TX_V3,
                "v3_and_below_topics": [{"name": TOPIC, "partitions": _same(0, 99_000)}],
            },
        ),
        (
            *(3, "topics that do not exist"),
            lambda: {**_TX_V3, "v3_and_below_topics": _topics(49_000, "partitions", 0)},
        ),
        (
            *(5, "many transactions"),
            lambda: {
                "transactions": [
                    {
                        "transactional_id": name,
                        "producer_id": 1,
                        "producer_epoch": 0,
                        "topics": [{"name": TOPIC, "partitions": [0]}],
                    }
                    for name in names(30_000)
                ]
            },
        ),
    ],
    _K.ADD_OFFSETS_TO_TXN: [(3, "a long name", lambda: {**_PRODUCER, "group_id": "g" * 32_000})],
    _K.END_TXN: [(4, "a long name", lambda: {**_PRODUCER, "transactional_id": "x" * 32_000})],
    _K.WRITE_TXN_MARKERS: [
        (
            *(1, "many transactions"),
            lambda: {
                "markers": [
                    {
                        "producer_id": number,
                        "topics": [{"name": TOPIC, "partition_indexes": [number % 3]}],
                    }
                    for number in range(_scaled(30_000))
                ]
            },
        ),
        (
            *(1, "the same partition again and again"),
            lambda: {
                "markers": [
                    {
                        "producer_id": 1,
                        "topics": [{"name": TOPIC, "partition_indexes": _same(0, 99_000)}],
                    }
                ]
            },
        ),
    ],
    _K.TXN_OFFSET_COMMIT: [
        (
            *(2, "the same partition again and again"),
            lambda: {
                **_PRODUCER,
                "group_id": "committed",
                "topics": [
                    {
                        "name": TOPIC,
                        "partitions": _again(58_000, partition_index=0, committed_offset=1),
                    }
                ],
            },
        ),
        (
            *(2, "topics that do not exist"),
            lambda: {
                **_PRODUCER,
                "group_id": "committed",
                "topics": _topics(
                    34_000, "partitions", {"partition_index": 0, "committed_offset": 1}
                ),
            },
        ),
    ],
    _K.DESCRIBE_ACLS: [(3, "all", lambda: dict(_ANY))],
    _K.CREATE_ACLS: [
        (
            *(2, "many rules"),
            lambda: {"creations": _each("resource_name", names(50_000), **_RULE)},
        )
    ],
    _K.DELETE_ACLS: [
        (
            *(2, "many filters"),
            lambda: {
                "filters": _each(
                    "principal_filter",
                    [f"User:{name}" for name in names(50_000)],
                    **{name: value for name, value in _ANY.items() if name != "principal_filter"},
                )
            },
        )
    ],
    _K.DESCRIBE_CONFIGS: [
        (
            *(4, "the same topic again and again"),
            lambda: {
                "resources": _again(
                    99_000, resource_type=2, resource_name=TOPIC, configuration_keys=None
                ),
                "include_documentation": True,
                "include_synonyms": True,
            },
        ),
        (
            *(4, "groups, each with its whole configuration"),
            lambda: {
                "resources": _each(
                    "resource_name", names(90_000), resource_type=32, configuration_keys=None
                ),
                "include_documentation": True,
                "include_synonyms": True,
            },
        ),
        (
            *(4, "many names of keys"),
            lambda: {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": TOPIC,
                        "configuration_keys": names(99_000),
                    }
                ]
            },
        ),
    ],
    _K.ALTER_CONFIGS: [
        (
            *(2, "topics that do not exist"),
            lambda: {
                "resources": _each("resource_name", names(80_000), resource_type=2, configs=[]),
                "validate_only": True,
            },
        ),
        (
            *(2, "many keys of one topic"),
            lambda: {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": TOPIC,
                        "configs": _each("name", names(80_000), value="1"),
                    }
                ],
                "validate_only": True,
            },
        ),
    ],
    _K.ALTER_REPLICA_LOG_DIRS: [
        (
            *(2, "the same partition again and again"),
            lambda: {
                "dirs": [
                    {"path": "/x", "topics": [{"name": TOPIC, "partitions": _same(0, 99_000)}]}
                ]
            },
        ),
        (
            *(2, "many directories"),
            lambda: {
                "dirs": [
                    {"path": f"/{name}", "topics": [{"name": TOPIC, "partitions": [0]}]}
                    for name in names(33_000)
                ]
            },
        ),
    ],
    _K.DESCRIBE_LOG_DIRS: [
        (
            *(4, "partitions that do not exist"),
            lambda: {"topics": [{"topic": TOPIC, "partitions": _numbers(99_000)}]},
        )
    ],
    _K.SASL_AUTHENTICATE: [(2, "a long token", lambda: {"auth_bytes": b"n,," + b"a" * 60_000})],
    _K.CREATE_PARTITIONS: [
        (
            *(3, "topics that do not exist"),
            lambda: {
                "topics": _each("name", names(70_000), count=2, assignments=None),
                "validate_only": True,
                "timeout_ms": 1000,
            },
        ),
        (
            *(3, "more partitions than anybody has"),
            lambda: {
                "topics": [{"name": TOPIC, "count": 2**31 - 1, "assignments": None}],
                "validate_only": True,
                "timeout_ms": 1000,
            },
        ),
        (
            *(3, "many assignments"),
            lambda: {
                "topics": [
                    {
                        "name": TOPIC,
                        "count": 49_003,
                        "assignments": _again(49_000, broker_ids=[1]),
                    }
                ],
                "validate_only": True,
                "timeout_ms": 1000,
            },
        ),
    ],
    _K.DELETE_GROUPS: [(2, "groups that do not exist", lambda: {"groups_names": names(99_000)})],
    _K.ELECT_LEADERS: [
        (
            *(2, "partitions that do not exist"),
            lambda: {
                "topic_partitions": [{"topic": TOPIC, "partitions": _numbers(99_000)}],
                "timeout_ms": 1000,
            },
        )
    ],
    _K.INCREMENTAL_ALTER_CONFIGS: [
        (
            *(1, "topics that do not exist"),
            lambda: {
                "resources": _each("resource_name", names(80_000), resource_type=2, configs=[]),
                "validate_only": True,
            },
        ),
        (
            *(1, "a list that grows"),
            lambda: {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": TOPIC,
                        "configs": _each(
                            "name", names(80_000), config_operation=2, value="compact"
                        ),
                    }
                ],
                "validate_only": True,
            },
        ),
    ],
    _K.ALTER_PARTITION_REASSIGNMENTS: [
        (
            *(0, "topics that do not exist"),
            lambda: {
                "topics": _topics(49_000, "partitions", {"partition_index": 0, "replicas": None})
            },
        ),
        (
            *(0, "partitions that do not exist"),
            lambda: {
                "topics": [
                    {
                        "name": TOPIC,
                        "partitions": _indexes("partition_index", 99_000, replicas=None),
                    }
                ]
            },
        ),
    ],
    _K.LIST_PARTITION_REASSIGNMENTS: [
        (
            *(0, "the same partition again and again"),
            lambda: {"topics": [{"name": TOPIC, "partition_indexes": _same(0, 99_000)}]},
        ),
        (
            0,
            "the same topic again and again",
            lambda: {"topics": _again(49_000, name=TOPIC, partition_indexes=[0])},
        ),
    ],
    _K.OFFSET_DELETE: [
        (
            *(0, "partitions that do not exist"),
            lambda: {
                "group_id": "committed",
                "topics": [{"name": TOPIC, "partitions": _indexes("partition_index", 99_000)}],
            },
        ),
        (
            *(0, "topics that do not exist"),
            lambda: {
                "group_id": "committed",
                "topics": _topics(49_000, "partitions", {"partition_index": 0}),
            },
        ),
    ],
    _K.DESCRIBE_CLIENT_QUOTAS: [
        (
            *(1, "many filters"),
            lambda: {"components": _each("match", names(70_000), entity_type="user", match_type=0)},
        )
    ],
    _K.ALTER_CLIENT_QUOTAS: [
        (
            *(1, "many users"),
            lambda: {
                "entries": [
                    {
                        "entity": [{"entity_type": "user", "entity_name": name}],
                        "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                    }
                    for name in names(20_000)
                ],
                "validate_only": True,
            },
        ),
        (
            *(1, "an entity of many parts"),
            lambda: {
                "entries": [
                    {
                        "entity": _each("entity_name", names(70_000), entity_type="user"),
                        "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                    }
                ],
                "validate_only": True,
            },
        ),
    ],
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: [
        (0, "users that do not exist", lambda: {"users": _each("name", names(99_000))})
    ],
    _K.ALTER_USER_SCRAM_CREDENTIALS: [
        (
            *(0, "users that do not exist"),
            lambda: {"deletions": _each("name", names(90_000), mechanism=1), "upsertions": []},
        ),
        (
            *(0, "passwords of many users"),
            lambda: {
                "deletions": [],
                "upsertions": _each(
                    "name",
                    names(18_000),
                    mechanism=1,
                    iterations=16_384,
                    salt=b"salt",
                    salted_password=bytes(32),
                ),
            },
        ),
    ],
    _K.DESCRIBE_QUORUM: [
        (
            *(2, "many topics"),
            lambda: {"topics": _each("topic_name", names(90_000), partitions=[])},
        )
    ],
    _K.UPDATE_FEATURES: [
        (
            *(1, "many features"),
            lambda: {
                "feature_updates": _each(
                    "feature", names(80_000), max_version_level=1, upgrade_type=1
                )
            },
        )
    ],
    _K.DESCRIBE_CLUSTER: [(1, "all", lambda: {"include_cluster_authorized_operations": True})],
    _K.DESCRIBE_PRODUCERS: [
        (
            *(0, "the same partition again and again"),
            lambda: {"topics": [{"name": TOPIC, "partition_indexes": _same(0, 99_000)}]},
        ),
        (
            0,
            "topics that do not exist",
            lambda: {"topics": _topics(49_000, "partition_indexes", 0)},
        ),
    ],
    _K.DESCRIBE_TRANSACTIONS: [
        (
            *(0, "transactions that do not exist"),
            lambda: {"transactional_ids": names(99_000)},
        )
    ],
    _K.LIST_TRANSACTIONS: [
        (1, "many filters", lambda: {"state_filters": [*names(90_000), "Ongoing"]}),
        (1, "many producers", lambda: {"producer_id_filters": _numbers(99_000)}),
    ],
    _K.CONSUMER_GROUP_HEARTBEAT: [
        (
            *(1, "many subscribed topics"),
            lambda: {
                "group_id": "beating",
                "member_id": _MEMBER,
                "member_epoch": 0,
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": names(99_000),
                "topic_partitions": [],
            },
        ),
        (
            *(1, "many owned partitions"),
            lambda: {
                "group_id": "beating",
                "member_id": _MEMBER,
                "member_epoch": 7,
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": [TOPIC],
                "topic_partitions": [{"topic_id": IdOf(TOPIC), "partitions": _numbers(99_000)}],
            },
        ),
    ],
    _K.CONSUMER_GROUP_DESCRIBE: [
        (
            *(1, "groups that do not exist"),
            lambda: {"group_ids": names(99_000), "include_authorized_operations": True},
        )
    ],
    _K.GET_TELEMETRY_SUBSCRIPTIONS: [(0, "all", lambda: {"client_instance_id": bytes(16)})],
    _K.PUSH_TELEMETRY: [
        (
            *(0, "a large payload"),
            lambda: {
                "client_instance_id": b"i" * 16,
                "subscription_id": 1,
                "metrics": bytes(SIZE),
            },
        )
    ],
    _K.LIST_CONFIG_RESOURCES: [(1, "many types", lambda: {"resource_types": _same(2, 99_000)})],
    _K.DESCRIBE_TOPIC_PARTITIONS: [
        (
            *(0, "topics that do not exist"),
            lambda: {"topics": _each("name", names(99_000)), "response_partition_limit": 2_000},
        )
    ],
    _K.SHARE_GROUP_HEARTBEAT: [
        (
            *(1, "many subscribed topics"),
            lambda: {
                "group_id": GROUP,
                "member_id": _MEMBER,
                "member_epoch": 0,
                "subscribed_topic_names": names(99_000),
            },
        )
    ],
    _K.SHARE_GROUP_DESCRIBE: [
        (
            *(1, "groups that do not exist"),
            lambda: {"group_ids": names(99_000), "include_authorized_operations": True},
        )
    ],
    _K.SHARE_FETCH: [
        (
            *(1, "partitions that do not exist"),
            lambda: {
                **_SESSION,
                "max_bytes": 1 << 20,
                "topics": [
                    {
                        "topic_id": IdOf(TOPIC),
                        "partitions": _indexes("partition_index", 99_000),
                    }
                ],
            },
        ),
        (
            *(1, "topics that do not exist"),
            lambda: {
                **_SESSION,
                "max_bytes": 1 << 20,
                "topics": [
                    {
                        "topic_id": number.to_bytes(16),
                        "partitions": _indexes("partition_index", 1),
                    }
                    for number in range(1, _scaled(40_000))
                ],
            },
        ),
    ],
    # In the session that the last request of ShareFetch has begun.
    _K.SHARE_ACKNOWLEDGE: [
        (
            *(1, "a range without an end, of one type"),
            lambda: {
                **_SESSION,
                "share_session_epoch": 1,
                "topics": _acknowledged([_range(0, _HUGE, 1)]),
            },
        ),
        (
            *(1, "many ranges of many records"),
            lambda: {
                **_SESSION,
                "share_session_epoch": 1,
                "topics": _acknowledged(
                    [
                        _range(number * 1_000_000, number * 1_000_000 + 999_999, 1)
                        for number in range(_scaled(49_000))
                    ]
                ),
            },
        ),
    ],
    _K.DESCRIBE_SHARE_GROUP_OFFSETS: [
        (
            *(1, "groups that do not exist"),
            lambda: {"groups": _each("group_id", names(90_000), topics=None)},
        ),
        (
            *(1, "partitions that do not exist"),
            lambda: {
                "groups": [
                    {
                        "group_id": GROUP,
                        "topics": [{"topic_name": TOPIC, "partitions": _numbers(99_000)}],
                    }
                ]
            },
        ),
    ],
    _K.ALTER_SHARE_GROUP_OFFSETS: [
        (
            *(0, "partitions that do not exist"),
            lambda: {
                "group_id": GROUP,
                "topics": [
                    {
                        "topic_name": TOPIC,
                        "partitions": _indexes("partition_index", 70_000, start_offset=0),
                    }
                ],
            },
        ),
        (
            *(0, "topics that do not exist"),
            lambda: {
                "group_id": GROUP,
                "topics": _topics(
                    40_000, "partitions", {"partition_index": 0, "start_offset": 0}, "topic_name"
                ),
            },
        ),
    ],
    _K.DELETE_SHARE_GROUP_OFFSETS: [
        (
            *(0, "topics that do not exist"),
            lambda: {"group_id": GROUP, "topics": _each("topic_name", names(99_000))},
        )
    ],
    _K.DESCRIBE_DELAYED: [
        (
            *(0, "the same partition again and again"),
            lambda: {
                "topics": [
                    {
                        "name": TOPIC,
                        "partitions": _again(30_000, partition_index=0, limit=1000),
                    }
                ]
            },
        ),
        (
            *(0, "topics that do not exist"),
            lambda: {"topics": _topics(20_000, "partitions", {"partition_index": 0, "limit": 5})},
        ),
    ],
    _K.QUEUE_OFFSETS: [
        (
            *(0, "partitions that do not exist"),
            lambda: {
                "action": 0,
                "group_id": GROUP,
                "topics": [{"name": TOPIC, "partitions": _indexes("partition_index", 70_000)}],
            },
        )
    ],
    _K.END_GROUP_TRANSACTION: [
        (
            0,
            "a long name",
            lambda: {"group_id": "g" * 32_000, "producer_id": 1, "producer_epoch": 0},
        )
    ],
}
