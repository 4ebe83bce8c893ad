"""The table: every API, what Apache Kafka checks for it in which order, and what it answers.

Written from Kafka's documentation (the table of authorizations per API in its security chapter),
the KIPs that it names, and the behaviour of ``KafkaApis`` and ``ControllerApis``; the tests ask
Apache Kafka itself about the same rows. A place in an answer is the way to the error code:
``responses[orders].partition_responses``, where brackets hold whose part it is, and ``whole`` is
the top.

Topics: ``orders`` exists; ``orders-absent`` and ``orders/invalid`` do not, and the latter cannot.
Groups: ``readers`` exists. Transactional ids: ``payments`` exists. Those of the *lobby* exist and
are open to all but the bare; those of the *vault* exist, and no rule names them.
"""

from typing import Any, Final

from .row import Check, IdOf, Row

T: Final = "TOPIC_AUTHORIZATION_FAILED"
G: Final = "GROUP_AUTHORIZATION_FAILED"
C: Final = "CLUSTER_AUTHORIZATION_FAILED"
X: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

Fields = dict[str, Any]

RECORDS: Final = "<records>"
TRANSACTIONAL_RECORDS: Final = "<transactional records>"


def whole(error: str) -> str:
    """An error of the whole answer."""
    return f"whole {error}"


def _cluster(operation: str) -> tuple[Check, ...]:
    """A request that is refused whole without an operation on the cluster."""
    return (Check(f"{operation} cluster", whole(C)),)


# -- Records ---------------------------------------------------------------------------------------


def _produce(*topics: str, records: str = RECORDS, transaction: str | None = None) -> Fields:
    def one(topic: str) -> Fields:
        return _named(topic, "name", partition_data=[{"index": 0, "records": records}])

    return {
        "transactional_id": transaction,
        "acks": 1,
        "timeout_ms": 5_000,
        "topic_data": [one(topic) for topic in topics],
    }


def _named(topic: str, key: str, **others: Any) -> Fields:
    """A part about a topic, by its name or its id."""
    named: Fields = {"topic_id": topic} if isinstance(topic, IdOf) else {key: topic}
    return named | others


def _fetch(*topics: str, **others: Any) -> Fields:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "topics": [_named(topic, "topic", partitions=[wanted]) for topic in topics],
        **others,
    }


ORDERS_ID: Final = IdOf("orders")
NOBODYS_ID: Final = IdOf("nobodys")

_PRODUCED: Final = "responses[orders].partition_responses"
_FETCHED: Final = "responses[orders].partitions"

RECORD_ROWS: Final = (
    Row(
        *("PRODUCE", 9, "to a topic"),
        _produce("orders"),
        (Check("WRITE topic orders", f"{_PRODUCED} {T}"),),
    ),
    Row(
        *("PRODUCE", 9, "to two topics: one is refused alone"),
        _produce("orders", "lobby"),
        (
            Check("WRITE topic orders", f"{_PRODUCED} {T}", goes_on=True),
            Check("WRITE topic lobby", f"responses[lobby].partition_responses {T}", goes_on=True),
        ),
    ),
    Row(
        *("PRODUCE", 9, "to a topic that does not exist"),
        _produce("orders-absent"),
        (Check("WRITE topic orders-absent", f"responses[orders-absent].partition_responses {T}"),),
        ("responses[orders-absent].partition_responses UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("PRODUCE", 13, "to a topic by its id"),
        _produce(ORDERS_ID),
        (Check("WRITE topic orders", f"{_PRODUCED} {T}"),),
    ),
    Row(
        *("PRODUCE", 13, "to an id that is nobody's"),
        _produce(NOBODYS_ID),
        then=("responses[nobodys].partition_responses UNKNOWN_TOPIC_ID",),
    ),
    Row(
        *("PRODUCE", 9, "in a transaction"),
        _produce("orders", records=TRANSACTIONAL_RECORDS, transaction="payments"),
        (
            Check("WRITE transaction payments", f"{_PRODUCED} {X}"),
            Check("WRITE topic orders", f"{_PRODUCED} {T}"),
        ),
        (f"{_PRODUCED} INVALID_PRODUCER_ID_MAPPING",),
    ),
    Row(
        *("FETCH", 12, "from a topic"),
        _fetch("orders"),
        (Check("READ topic orders", f"{_FETCHED} {T}"),),
    ),
    Row(
        *("FETCH", 12, "from two topics: one is refused alone"),
        _fetch("orders", "lobby"),
        (
            Check("READ topic orders", f"{_FETCHED} {T}", goes_on=True),
            Check("READ topic lobby", f"responses[lobby].partitions {T}", goes_on=True),
        ),
    ),
    Row(
        *("FETCH", 12, "from a topic that does not exist"),
        _fetch("orders-absent"),
        (Check("READ topic orders-absent", f"responses[orders-absent].partitions {T}"),),
        ("responses[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("FETCH", 16, "from a topic by its id"),
        _fetch(ORDERS_ID),
        (Check("READ topic orders", f"{_FETCHED} {T}"),),
    ),
    Row(
        *("FETCH", 16, "from an id that is nobody's"),
        _fetch(NOBODYS_ID),
        then=("responses[nobodys].partitions UNKNOWN_TOPIC_ID",),
    ),
    Row(
        *("FETCH", 12, "from a topic that everybody may read"),
        _fetch("plaza"),
        (Check("READ topic plaza", f"responses[plaza].partitions {T}"),),
        ("responses[plaza].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("FETCH", 12, "from a topic that nobody may read"),
        _fetch("closed"),
        (Check("READ topic closed", f"responses[closed].partitions {T}"),),
        ("responses[closed].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("FETCH", 12, "as a follower, of a topic that does not exist"),
        _fetch("orders-absent", replica_id=2),
        (Check("CLUSTER_ACTION cluster", f"responses[orders-absent].partitions {T}"),),
        ("responses[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("LIST_OFFSETS", 5, "of a topic"),
        {
            "replica_id": -1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        (Check("DESCRIBE topic orders", f"topics[orders].partitions {T}"),),
    ),
    Row(
        *("LIST_OFFSETS", 5, "of a topic that does not exist"),
        {
            "replica_id": -1,
            "topics": [
                {"name": "orders-absent", "partitions": [{"partition_index": 0, "timestamp": -1}]}
            ],
        },
        (Check("DESCRIBE topic orders-absent", f"topics[orders-absent].partitions {T}"),),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("OFFSET_FOR_LEADER_EPOCH", 4, "of a topic"),
        {"topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        (
            Check(
                "CLUSTER_ACTION cluster or DESCRIBE topic orders", f"topics[orders].partitions {T}"
            ),
        ),
    ),
    Row(
        *("DELETE_RECORDS", 2, "of a topic"),
        {
            "timeout_ms": 5_000,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}],
        },
        (Check("DELETE topic orders", f"topics[orders].partitions {T}"),),
    ),
    Row(
        *("DELETE_RECORDS", 2, "of a topic that does not exist"),
        {
            "timeout_ms": 5_000,
            "topics": [
                {"name": "orders-absent", "partitions": [{"partition_index": 0, "offset": 0}]}
            ],
        },
        (Check("DELETE topic orders-absent", f"topics[orders-absent].partitions {T}"),),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("DESCRIBE_PRODUCERS", 0, "of a topic"),
        {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        (Check("READ topic orders", f"topics[orders].partitions {T}"),),
    ),
    Row(
        *("DESCRIBE_DELAYED", 0, "of a topic"),
        {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "limit": 5}]}]},
        (Check("READ topic orders", f"topics[orders].partitions {T}"),),
        is_kafkas=False,
    ),
)

# -- What topics there are -------------------------------------------------------------------------

_ALL_TOPICS: Final = {
    "orders": "DESCRIBE topic orders",
    "lobby": "DESCRIBE topic lobby",
    "vault": "DESCRIBE topic vault",
}


def _metadata(*topics: str, **others: Any) -> Fields:
    named = [
        {"topic_id": topic, "name": None} if isinstance(topic, IdOf) else {"name": topic}
        for topic in topics
    ]
    return {"topics": named, "allow_auto_topic_creation": False, **others}


TOPIC_ROWS: Final = (
    Row(
        *("METADATA", 8, "of a topic"),
        _metadata("orders", include_topic_authorized_operations=True),
        (Check("DESCRIBE topic orders", f"topics[orders] {T}"),),
        operations={"topics[orders].topic_authorized_operations": "topic orders"},
    ),
    Row(
        *("METADATA", 8, "of two topics: one is refused alone"),
        _metadata("orders", "lobby"),
        (
            Check("DESCRIBE topic orders", f"topics[orders] {T}", goes_on=True),
            Check("DESCRIBE topic lobby", f"topics[lobby] {T}", goes_on=True),
        ),
    ),
    Row(
        *("METADATA", 8, "of a topic that does not exist"),
        _metadata("orders-absent"),
        (Check("DESCRIBE topic orders-absent", f"topics[orders-absent] {T}"),),
        ("topics[orders-absent] UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("METADATA", 8, "of a topic that it would create, could that exist"),
        _metadata("orders/invalid", allow_auto_topic_creation=True),
        (
            Check("DESCRIBE topic orders/invalid", f"topics[orders/invalid] {T}"),
            Check("CREATE cluster or CREATE topic orders/invalid", f"topics[orders/invalid] {T}"),
        ),
        ("topics[orders/invalid] INVALID_TOPIC_EXCEPTION",),
    ),
    Row(
        *("METADATA", 12, "of a topic by its id, whose name is not told"),
        _metadata(ORDERS_ID),
        (Check("DESCRIBE topic orders", f"topics[orders] {T}"),),
        shows={"orders": "DESCRIBE topic orders"},
    ),
    Row(
        *("METADATA", 12, "of an id that is nobody's"),
        _metadata(NOBODYS_ID),
        then=("topics[nobodys] UNKNOWN_TOPIC_ID",),
    ),
    Row(
        *("METADATA", 8, "of all topics, and what may be done to the cluster"),
        {
            "topics": None,
            "include_cluster_authorized_operations": True,
            "allow_auto_topic_creation": False,
        },
        shows=_ALL_TOPICS,
        operations={"cluster_authorized_operations": "cluster"},
    ),
    Row(
        *("DESCRIBE_TOPIC_PARTITIONS", 0, "of a topic"),
        {"topics": [{"name": "orders"}]},
        (Check("DESCRIBE topic orders", f"topics[orders] {T}"),),
        operations={"topics[orders].topic_authorized_operations": "topic orders"},
    ),
    Row(
        *("DESCRIBE_TOPIC_PARTITIONS", 0, "of a topic that does not exist"),
        {"topics": [{"name": "orders-absent"}]},
        (Check("DESCRIBE topic orders-absent", f"topics[orders-absent] {T}"),),
        ("topics[orders-absent] UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("CREATE_TOPICS", 5, "a topic"),
        {
            "topics": [{"name": "orders-absent", "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        (
            Check("CREATE cluster or CREATE topic orders-absent", f"topics[orders-absent] {T}"),
            Check(
                "DESCRIBE_CONFIGS topic orders-absent",
                f"topics[orders-absent].topic_config_error_code {T}",
                goes_on=True,
            ),
        ),
    ),
    Row(
        *("CREATE_TOPICS", 5, "a topic that exists"),
        {
            "topics": [{"name": "orders", "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        (Check("CREATE cluster or CREATE topic orders", f"topics[orders] {T}"),),
        ("topics[orders] TOPIC_ALREADY_EXISTS",),
    ),
    Row(
        *("DELETE_TOPICS", 5, "a topic"),
        {"topic_names": ["orders"], "timeout_ms": 5_000},
        (
            Check(
                "DELETE cluster or DELETE topic orders",
                f"responses[orders] {T}",
            ),
        ),
        only_refused=True,
    ),
    Row(
        *("DELETE_TOPICS", 5, "a topic that does not exist"),
        {"topic_names": ["orders-absent"], "timeout_ms": 5_000},
        (Check("DELETE cluster or DESCRIBE topic orders-absent", f"responses[orders-absent] {T}"),),
        ("responses[orders-absent] UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("DELETE_TOPICS", 6, "a topic by its id, whose name is not told"),
        {"topics": [{"topic_id": ORDERS_ID, "name": None}], "timeout_ms": 5_000},
        (
            Check("DELETE cluster or DESCRIBE topic orders", f"responses[orders] {T}"),
            Check(
                "DELETE cluster or DELETE topic orders", f"responses[orders] {T}", "shows orders"
            ),
        ),
        only_refused=True,
    ),
    Row(
        *("DELETE_TOPICS", 6, "an id that is nobody's"),
        {"topics": [{"topic_id": NOBODYS_ID, "name": None}], "timeout_ms": 5_000},
        then=("responses[nobodys] UNKNOWN_TOPIC_ID",),
    ),
    Row(
        *("CREATE_PARTITIONS", 2, "of a topic"),
        {
            "topics": [{"name": "orders", "count": 1, "assignments": None}],
            "timeout_ms": 5_000,
            "validate_only": True,
        },
        (Check("ALTER topic orders", f"results[orders] {T}"),),
        ("results[orders] INVALID_PARTITIONS",),
    ),
    Row(
        *("CREATE_PARTITIONS", 2, "of a topic that does not exist"),
        {
            "topics": [{"name": "orders-absent", "count": 2, "assignments": None}],
            "timeout_ms": 5_000,
            "validate_only": True,
        },
        (Check("ALTER topic orders-absent", f"results[orders-absent] {T}"),),
        ("results[orders-absent] UNKNOWN_TOPIC_OR_PARTITION",),
    ),
)

# -- Configuration ---------------------------------------------------------------------------------

_RESOURCES: Final = (
    ("a topic", 2, "orders", "topic orders", T),
    ("a topic that does not exist", 2, "orders-absent", "topic orders-absent", T),
    ("a broker", 4, "1", "cluster", C),
    ("a group", 32, "readers", "group readers", G),
)


def _configuration_rows() -> "list[Row]":
    rows = []
    for case, kind, name, whose, error in _RESOURCES:
        is_absent = name == "orders-absent"
        resource = {"resource_type": kind, "resource_name": name}
        described = f"results[{name}]"
        altered = f"responses[{name}]"
        unknown = "UNKNOWN_TOPIC_OR_PARTITION"
        rows += [
            Row(
                *("DESCRIBE_CONFIGS", 4, f"of {case}"),
                {"resources": [{**resource, "configuration_keys": ["none"]}]},
                (Check(f"DESCRIBE_CONFIGS {whose}", f"{described} {error}"),),
                (f"{described} {unknown}",) if is_absent else (),
            ),
            Row(
                *("INCREMENTAL_ALTER_CONFIGS", 1, f"of {case}"),
                {"resources": [{**resource, "configs": []}], "validate_only": True},
                (Check(f"ALTER_CONFIGS {whose}", f"{altered} {error}"),),
                (f"{altered} {unknown}",) if is_absent else (),
            ),
        ]
        if kind == 2:
            rows.append(
                Row(
                    *("ALTER_CONFIGS", 2, f"of {case}"),
                    {"resources": [{**resource, "configs": []}], "validate_only": True},
                    (Check(f"ALTER_CONFIGS {whose}", f"{altered} {error}"),),
                    (f"{altered} {unknown}",) if is_absent else (),
                )
            )
    return rows


CONFIGURATION_ROWS: Final = (
    *_configuration_rows(),
    Row(
        *("LIST_CONFIG_RESOURCES", 1, "of all types"),
        {"resource_types": []},
        _cluster("DESCRIBE_CONFIGS"),
        shows={
            "orders": "DESCRIBE_CONFIGS cluster",
            "lobby": "DESCRIBE_CONFIGS cluster",
            "vault": "DESCRIBE_CONFIGS cluster",
        },
    ),
)

# -- Groups ----------------------------------------------------------------------------------------

_MEMBER: Final = {"group_id": "readers", "member_id": "m"}
_READS: Final = (Check("READ group readers", whole(G)),)


def _commit(group: str, *topics: str) -> Fields:
    position = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return {
        "group_id": group,
        "topics": [_named(topic, "name", partitions=[position]) for topic in topics],
    }


def _committed(group: str, *topics: str) -> Fields:
    asked = [_named(topic, "name", partition_indexes=[0]) for topic in topics]
    return {"groups": [{"group_id": group, "topics": asked or None}]}


MEMBERSHIP_ROWS: Final = (
    Row(
        *("JOIN_GROUP", 5, "as nobody it knows"),
        {
            **_MEMBER,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        _READS,
        (whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("SYNC_GROUP", 4, "as nobody it knows"),
        {**_MEMBER, "generation_id": 1},
        _READS,
        (whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("HEARTBEAT", 4, "as nobody it knows"),
        {**_MEMBER, "generation_id": 1},
        _READS,
        (whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("LEAVE_GROUP", 2, "as nobody it knows"),
        _MEMBER,
        _READS,
        (whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("CONSUMER_GROUP_HEARTBEAT", 1, "as nobody it knows, of an open topic"),
        {
            **_MEMBER,
            "member_epoch": 7,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["lobby"],
            "topic_partitions": [],
        },
        (*_READS, Check("DESCRIBE topic lobby", whole(T))),
        (whole("GROUP_ID_NOT_FOUND"),),
        our_then=(whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("CONSUMER_GROUP_HEARTBEAT", 1, "as nobody that an open group knows, of a topic"),
        {
            "group_id": "lobby-group",
            "member_id": "m",
            "member_epoch": 7,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
        },
        (
            Check("READ group lobby-group", whole(G)),
            Check("DESCRIBE topic orders", whole(T)),
        ),
        (whole("GROUP_ID_NOT_FOUND"),),
        our_then=(whole("UNKNOWN_MEMBER_ID"),),
    ),
)

GROUP_ROWS: Final = (
    Row(
        *("OFFSET_COMMIT", 8, "of a group"),
        _commit("readers", "lobby"),
        (
            Check("READ group readers", f"topics[lobby].partitions {G}"),
            Check("READ topic lobby", f"topics[lobby].partitions {T}"),
        ),
    ),
    Row(
        *("OFFSET_COMMIT", 8, "of two topics: one is refused alone"),
        _commit("lobby-group", "orders", "lobby"),
        (
            Check(
                "READ group lobby-group",
                f"topics[orders].partitions {G}",
                f"topics[lobby].partitions {G}",
            ),
            Check("READ topic orders", f"topics[orders].partitions {T}", goes_on=True),
            Check("READ topic lobby", f"topics[lobby].partitions {T}", goes_on=True),
        ),
    ),
    Row(
        *("OFFSET_COMMIT", 8, "of a topic that does not exist"),
        _commit("lobby-group", "orders-absent"),
        (
            Check("READ group lobby-group", f"topics[orders-absent].partitions {G}"),
            Check("READ topic orders-absent", f"topics[orders-absent].partitions {T}"),
        ),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("OFFSET_COMMIT", 10, "of a topic by its id"),
        _commit("lobby-group", ORDERS_ID),
        (
            Check("READ group lobby-group", f"topics[orders].partitions {G}"),
            Check("READ topic orders", f"topics[orders].partitions {T}"),
        ),
    ),
    Row(
        *("OFFSET_FETCH", 9, "of a group"),
        _committed("readers", "lobby"),
        (
            Check("DESCRIBE group readers", f"groups[readers] {G}"),
            Check("DESCRIBE topic lobby", f"groups[readers].topics[lobby].partitions {T}"),
        ),
    ),
    Row(
        *("OFFSET_FETCH", 9, "of a group that does not exist"),
        _committed("readers-absent", "lobby"),
        (
            Check("DESCRIBE group readers-absent", f"groups[readers-absent] {G}"),
            Check("DESCRIBE topic lobby", f"groups[readers-absent].topics[lobby].partitions {T}"),
        ),
    ),
    Row(
        *("OFFSET_FETCH", 9, "of two topics: one is refused alone"),
        _committed("lobby-group", "orders", "lobby"),
        (
            Check("DESCRIBE group lobby-group", f"groups[lobby-group] {G}"),
            Check(
                "DESCRIBE topic orders",
                f"groups[lobby-group].topics[orders].partitions {T}",
                goes_on=True,
            ),
            Check(
                "DESCRIBE topic lobby",
                f"groups[lobby-group].topics[lobby].partitions {T}",
                goes_on=True,
            ),
        ),
    ),
    Row(
        *("OFFSET_FETCH", 10, "of a topic by its id"),
        _committed("lobby-group", ORDERS_ID),
        (
            Check("DESCRIBE group lobby-group", f"groups[lobby-group] {G}"),
            Check("DESCRIBE topic orders", f"groups[lobby-group].topics[orders].partitions {T}"),
        ),
    ),
    Row(
        *("OFFSET_FETCH", 9, "of all topics"),
        _committed("lobby-group"),
        (Check("DESCRIBE group lobby-group", f"groups[lobby-group] {G}"),),
        shows=_ALL_TOPICS,
    ),
    Row(
        *("OFFSET_DELETE", 0, "of a group that has none"),
        {"group_id": "readers-absent", "topics": [{"name": "lobby", "partitions": []}]},
        (Check("DELETE group readers-absent", whole(G)),),
        (whole("GROUP_ID_NOT_FOUND"),),
    ),
    Row(
        *("OFFSET_DELETE", 0, "of a topic that does not exist"),
        {
            "group_id": "lobby-group",
            "topics": [{"name": "orders-absent", "partitions": [{"partition_index": 0}]}],
        },
        (
            Check("DELETE group lobby-group", whole(G)),
            Check("READ topic orders-absent", f"topics[orders-absent].partitions {T}"),
        ),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("FIND_COORDINATOR", 4, "of a group"),
        {"coordinator_keys": ["readers"]},
        (Check("DESCRIBE group readers", f"coordinators[readers] {G}"),),
    ),
    Row(
        *("FIND_COORDINATOR", 4, "of a group that does not exist"),
        {"coordinator_keys": ["readers-absent"]},
        (Check("DESCRIBE group readers-absent", f"coordinators[readers-absent] {G}"),),
    ),
    Row(
        *("FIND_COORDINATOR", 3, "of one group"),
        {"key": "readers"},
        (Check("DESCRIBE group readers", whole(G)),),
    ),
    Row(
        *("FIND_COORDINATOR", 4, "of a transactional id"),
        {"coordinator_keys": ["payments"], "key_type": 1},
        (Check("DESCRIBE transaction payments", f"coordinators[payments] {X}"),),
    ),
    Row(
        *("DESCRIBE_GROUPS", 5, "of a group, and what may be done to it"),
        {"groups": ["readers"], "include_authorized_operations": True},
        (Check("DESCRIBE group readers", f"groups[readers] {G}"),),
        operations={"groups[readers].authorized_operations": "group readers"},
    ),
    Row(
        *("DESCRIBE_GROUPS", 5, "of a group that does not exist"),
        {"groups": ["readers-absent"]},
        (Check("DESCRIBE group readers-absent", f"groups[readers-absent] {G}"),),
    ),
    Row(
        *("CONSUMER_GROUP_DESCRIBE", 1, "of a group of another kind"),
        {"group_ids": ["readers"]},
        (Check("DESCRIBE group readers", f"groups[readers] {G}"),),
        ("groups[readers] GROUP_ID_NOT_FOUND",),
    ),
    Row(
        *("LIST_GROUPS", 4, "all"),
        {},
        shows={
            "readers": "DESCRIBE cluster or DESCRIBE group readers",
            "lobby-group": "DESCRIBE cluster or DESCRIBE group lobby-group",
            "vault-group": "DESCRIBE cluster or DESCRIBE group vault-group",
        },
    ),
    Row(
        *("DELETE_GROUPS", 2, "a group"),
        {"groups_names": ["readers"]},
        (Check("DELETE group readers", f"results[readers] {G}"),),
        only_refused=True,
    ),
    Row(
        *("DELETE_GROUPS", 2, "a group that does not exist"),
        {"groups_names": ["readers-absent"]},
        (Check("DELETE group readers-absent", f"results[readers-absent] {G}"),),
        ("results[readers-absent] GROUP_ID_NOT_FOUND",),
    ),
)

# -- Share groups ----------------------------------------------------------------------------------

_UNKNOWN_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAQ"

SHARE_ROWS: Final = (
    Row(
        *("SHARE_GROUP_HEARTBEAT", 1, "as nobody it knows, of an open topic"),
        {
            "group_id": "readers-absent",
            "member_id": _UNKNOWN_MEMBER,
            "member_epoch": 7,
            "subscribed_topic_names": ["lobby"],
        },
        (
            Check("READ group readers-absent", whole(G)),
            Check("DESCRIBE topic lobby", whole(T)),
        ),
        (whole("GROUP_ID_NOT_FOUND"),),
        our_then=(whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("SHARE_GROUP_HEARTBEAT", 1, "as nobody that an open group knows, of a topic"),
        {
            "group_id": "lobby-group",
            "member_id": _UNKNOWN_MEMBER,
            "member_epoch": 7,
            "subscribed_topic_names": ["orders"],
        },
        (
            Check("READ group lobby-group", whole(G)),
            Check("DESCRIBE topic orders", whole(T)),
        ),
        (whole("GROUP_ID_NOT_FOUND"),),
        our_then=(whole("UNKNOWN_MEMBER_ID"),),
    ),
    Row(
        *("SHARE_GROUP_DESCRIBE", 1, "of a group of another kind"),
        {"group_ids": ["readers"]},
        (Check("DESCRIBE group readers", f"groups[readers] {G}"),),
        ("groups[readers] GROUP_ID_NOT_FOUND",),
    ),
    Row(
        *("SHARE_FETCH", 1, "in a session that there is not"),
        {
            "group_id": "readers",
            "member_id": _UNKNOWN_MEMBER,
            "share_session_epoch": 7,
            "max_bytes": 1024,
            "max_records": 1,
            "batch_size": 1,
        },
        _READS,
        (whole("SHARE_SESSION_NOT_FOUND"),),
    ),
    Row(
        *("SHARE_ACKNOWLEDGE", 1, "in a session that there is not"),
        {"group_id": "readers", "member_id": _UNKNOWN_MEMBER, "share_session_epoch": 7},
        _READS,
        (whole("SHARE_SESSION_NOT_FOUND"),),
    ),
    Row(
        *("DESCRIBE_SHARE_GROUP_OFFSETS", 1, "of a group of another kind"),
        {"groups": [{"group_id": "readers", "topics": None}]},
        (Check("DESCRIBE group readers", f"groups[readers] {G}"),),
        our_then=("groups[readers] GROUP_ID_NOT_FOUND",),
    ),
    Row(
        *("ALTER_SHARE_GROUP_OFFSETS", 0, "of a group of another kind"),
        {
            "group_id": "readers",
            "topics": [
                {"topic_name": "lobby", "partitions": [{"partition_index": 0, "start_offset": 0}]}
            ],
        },
        _READS,
        (whole("GROUP_ID_NOT_FOUND"),),
    ),
    Row(
        *("DELETE_SHARE_GROUP_OFFSETS", 0, "of a group of another kind"),
        {"group_id": "readers", "topics": [{"topic_name": "lobby"}]},
        (Check("DELETE group readers", whole(G)),),
        (whole("GROUP_ID_NOT_FOUND"),),
    ),
    Row(
        *("QUEUE_OFFSETS", 0, "of a group"),
        {"action": 0, "group_id": "readers", "topics": None},
        (Check("CLUSTER_ACTION cluster or DESCRIBE group readers", whole(G)),),
        is_kafkas=False,
    ),
)

# -- Transactions ----------------------------------------------------------------------------------

_PRODUCER: Final = {"transactional_id": "payments", "producer_id": 123_456, "producer_epoch": 0}


def _added(version_3: bool) -> Fields:
    topics = [{"name": "orders", "partitions": [0]}]
    if version_3:
        old = {f"v3_and_below_{name}": value for name, value in _PRODUCER.items()}
        return {**old, "v3_and_below_topics": topics}
    return {"transactions": [{**_PRODUCER, "topics": topics}]}


_TX_POSITION: Final = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}


def _tx_commit(group: str, topic: str, transaction: str = "payments") -> Fields:
    return {
        **_PRODUCER,
        "transactional_id": transaction,
        "group_id": group,
        "topics": [{"name": topic, "partitions": [_TX_POSITION]}],
    }


_ADDED_V3: Final = "results_by_topic_v3_and_below[orders].results_by_partition.partition_error_code"

TRANSACTION_ROWS: Final = (
    Row(
        *("INIT_PRODUCER_ID", 4, "of a transactional id"),
        {"transactional_id": "payments", "transaction_timeout_ms": 0},
        (Check("WRITE transaction payments", whole(X)),),
        (whole("INVALID_TRANSACTION_TIMEOUT"),),
    ),
    Row(
        *("INIT_PRODUCER_ID", 4, "without one, for idempotence"),
        {"transactional_id": None, "transaction_timeout_ms": 0},
        (Check("IDEMPOTENT_WRITE cluster or WRITE any topic", whole(C)),),
        is_bare=True,
    ),
    Row(
        *("ADD_PARTITIONS_TO_TXN", 3, "a topic"),
        _added(True),
        (
            Check("WRITE transaction payments", f"{_ADDED_V3} {X}"),
            Check("WRITE topic orders", f"{_ADDED_V3} {T}"),
        ),
        (f"{_ADDED_V3} INVALID_PRODUCER_ID_MAPPING",),
    ),
    Row(
        *("ADD_PARTITIONS_TO_TXN", 4, "as a broker"),
        _added(False),
        _cluster("CLUSTER_ACTION"),
        (
            "results_by_transaction[payments].topic_results[orders].results_by_partition."
            "partition_error_code INVALID_PRODUCER_ID_MAPPING",
        ),
    ),
    Row(
        *("ADD_OFFSETS_TO_TXN", 3, "of a group"),
        {**_PRODUCER, "group_id": "lobby-group"},
        (
            Check("WRITE transaction payments", whole(X)),
            Check("READ group lobby-group", whole(G)),
        ),
        (whole("INVALID_PRODUCER_ID_MAPPING"),),
    ),
    Row(
        *("ADD_OFFSETS_TO_TXN", 3, "of an open transaction"),
        {**_PRODUCER, "transactional_id": "lobby-tx", "group_id": "readers"},
        (
            Check("WRITE transaction lobby-tx", whole(X)),
            Check("READ group readers", whole(G)),
        ),
        (whole("INVALID_PRODUCER_ID_MAPPING"),),
    ),
    Row(
        *("END_TXN", 3, "of a transactional id"),
        {**_PRODUCER, "committed": True},
        (Check("WRITE transaction payments", whole(X)),),
        (whole("INVALID_PRODUCER_ID_MAPPING"),),
    ),
    Row(
        *("TXN_OFFSET_COMMIT", 3, "of a transactional id"),
        _tx_commit("lobby-group", "orders-absent"),
        (
            Check("WRITE transaction payments", f"topics[orders-absent].partitions {X}"),
            Check("READ group lobby-group", f"topics[orders-absent].partitions {G}"),
            Check("READ topic orders-absent", f"topics[orders-absent].partitions {T}"),
        ),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("TXN_OFFSET_COMMIT", 3, "of a group, in an open transaction"),
        _tx_commit("readers", "orders-absent", "lobby-tx"),
        (
            Check("WRITE transaction lobby-tx", f"topics[orders-absent].partitions {X}"),
            Check("READ group readers", f"topics[orders-absent].partitions {G}"),
            Check("READ topic orders-absent", f"topics[orders-absent].partitions {T}"),
        ),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("TXN_OFFSET_COMMIT", 3, "of a topic, all else open"),
        _tx_commit("lobby-group", "orders-absent", "lobby-tx"),
        (
            Check("WRITE transaction lobby-tx", f"topics[orders-absent].partitions {X}"),
            Check("READ group lobby-group", f"topics[orders-absent].partitions {G}"),
            Check("READ topic orders-absent", f"topics[orders-absent].partitions {T}"),
        ),
        ("topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("WRITE_TXN_MARKERS", 1, "as a broker"),
        {
            "markers": [
                {
                    "producer_id": 123_456,
                    "topics": [{"name": "orders-absent", "partition_indexes": [0]}],
                }
            ]
        },
        (
            Check(
                "ALTER cluster or CLUSTER_ACTION cluster",
                f"markers.topics[orders-absent].partitions {C}",
            ),
        ),
        ("markers.topics[orders-absent].partitions UNKNOWN_TOPIC_OR_PARTITION",),
    ),
    Row(
        *("DESCRIBE_TRANSACTIONS", 0, "of a transactional id"),
        {"transactional_ids": ["payments"]},
        (Check("DESCRIBE transaction payments", f"transaction_states[payments] {X}"),),
    ),
    Row(
        *("DESCRIBE_TRANSACTIONS", 0, "of a transactional id that does not exist"),
        {"transactional_ids": ["payments-absent"]},
        (
            Check(
                "DESCRIBE transaction payments-absent", f"transaction_states[payments-absent] {X}"
            ),
        ),
        ("transaction_states[payments-absent] TRANSACTIONAL_ID_NOT_FOUND",),
    ),
    Row(
        *("LIST_TRANSACTIONS", 1, "all"),
        {},
        shows={
            "payments": "DESCRIBE transaction payments",
            "lobby-tx": "DESCRIBE transaction lobby-tx",
            "vault-tx": "DESCRIBE transaction vault-tx",
        },
    ),
    Row(
        *("END_GROUP_TRANSACTION", 0, "as a broker"),
        {"group_id": "readers", "producer_id": 123_456, "producer_epoch": 0, "committed": True},
        _cluster("CLUSTER_ACTION"),
        is_kafkas=False,
    ),
)

# -- The cluster -----------------------------------------------------------------------------------

_NOBODY: Final = "User:nobody-there"
_ANY: Final = 1  # of filters

CLUSTER_ROWS: Final = (
    Row(
        *("DESCRIBE_CLUSTER", 1, "and what may be done to it"),
        {"include_cluster_authorized_operations": True},
        operations={"cluster_authorized_operations": "cluster"},
    ),
    Row(
        *("DESCRIBE_LOG_DIRS", 4, "all"),
        {"topics": None},
        _cluster("DESCRIBE"),
        shows={
            "orders": "DESCRIBE cluster",
            "lobby": "DESCRIBE cluster",
            "vault": "DESCRIBE cluster",
        },
    ),
    Row(
        *("ALTER_REPLICA_LOG_DIRS", 2, "to one that there is not"),
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]},
        (Check("ALTER cluster", f"results[orders].partitions {C}"),),
        ("results[orders].partitions LOG_DIR_NOT_FOUND",),
    ),
    Row(
        *("ELECT_LEADERS", 2, "of a topic"),
        {
            "election_type": 0,
            "topic_partitions": [{"topic": "orders", "partitions": [0]}],
            "timeout_ms": 5_000,
        },
        (
            Check(
                "ALTER cluster",
                whole(C),
                f"replica_election_results[orders].partition_result {C}",
            ),
        ),
        ("replica_election_results[orders].partition_result ELECTION_NOT_NEEDED",),
    ),
    Row(
        *("ALTER_PARTITION_REASSIGNMENTS", 0, "ending one that there is not"),
        {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}]},
        (Check("ALTER cluster", whole(C), f"responses[orders].partitions {C}"),),
        ("responses[orders].partitions NO_REASSIGNMENT_IN_PROGRESS",),
    ),
    Row(
        *("LIST_PARTITION_REASSIGNMENTS", 0, "all"),
        {"topics": None},
        _cluster("DESCRIBE"),
    ),
    Row(
        *("UPDATE_FEATURES", 1, "none"),
        {"feature_updates": [], "validate_only": True},
        _cluster("ALTER"),
    ),
    Row(
        *("DESCRIBE_ACLS", 2, "of nobody"),
        {
            "resource_type_filter": _ANY,
            "resource_name_filter": None,
            "pattern_type_filter": _ANY,
            "principal_filter": _NOBODY,
            "host_filter": None,
            "operation": _ANY,
            "permission_type": _ANY,
        },
        _cluster("DESCRIBE"),
    ),
    Row(
        *("CREATE_ACLS", 2, "one that there is"),
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "lobby",
                    "resource_pattern_type": 3,
                    "principal": "User:nothing",
                    "host": "*",
                    "operation": 2,
                    "permission_type": 3,
                }
            ]
        },
        (Check("ALTER cluster", f"results {C}"),),
    ),
    Row(
        *("DELETE_ACLS", 2, "of nobody"),
        {
            "filters": [
                {
                    "resource_type_filter": _ANY,
                    "resource_name_filter": None,
                    "pattern_type_filter": _ANY,
                    "principal_filter": _NOBODY,
                    "host_filter": None,
                    "operation": _ANY,
                    "permission_type": _ANY,
                }
            ]
        },
        (Check("ALTER cluster", f"filter_results {C}"),),
    ),
    Row(
        *("DESCRIBE_CLIENT_QUOTAS", 1, "of nobody"),
        {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": "nobody-there"},
            ],
            "strict": True,
        },
        _cluster("DESCRIBE_CONFIGS"),
    ),
    Row(
        *("ALTER_CLIENT_QUOTAS", 1, "of nobody"),
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody-there"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        (Check("ALTER_CONFIGS cluster", f"entries {C}"),),
    ),
    Row(
        *("DESCRIBE_USER_SCRAM_CREDENTIALS", 0, "of nobody"),
        {"users": [{"name": "nobody-there"}]},
        (Check("DESCRIBE cluster", whole(C), f"results {C}"),),
        ("results[nobody-there] RESOURCE_NOT_FOUND",),
    ),
    Row(
        *("ALTER_USER_SCRAM_CREDENTIALS", 0, "of nobody"),
        {"deletions": [{"name": "nobody-there", "mechanism": 1}], "upsertions": []},
        (Check("ALTER cluster", f"results[nobody-there] {C}"),),
        ("results[nobody-there] RESOURCE_NOT_FOUND",),
    ),
    Row(
        *("GET_TELEMETRY_SUBSCRIPTIONS", 0, "which everybody may"),
        {"client_instance_id": bytes(16)},
    ),
)

TABLE: Final = (
    *RECORD_ROWS,
    *TOPIC_ROWS,
    *CONFIGURATION_ROWS,
    *MEMBERSHIP_ROWS,
    *GROUP_ROWS,
    *SHARE_ROWS,
    *TRANSACTION_ROWS,
    *CLUSTER_ROWS,
)

FOR_EVERYBODY: Final = {
    "API_VERSIONS": "asked before anything is known of the client",
    "SASL_HANDSHAKE": "how one becomes somebody",
    "SASL_AUTHENTICATE": "how one becomes somebody",
    "PUSH_TELEMETRY": "as its subscriptions, which everybody may",
    "DESCRIBE_QUORUM": "there is none",
}
"""APIs without a row, and why."""
