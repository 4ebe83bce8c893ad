"""Every API asks whether its client may do what it asks for, and does nothing if not.

The table says for each API what is asked of the authorizer, and which error the client gets. A
topic ``orders`` and a group ``readers`` exist; denied clients must leave both as they are.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qbus.broker.authorization import (
    CLUSTER,
    AccessControl,
    AclAuthorizer,
    Operation,
    Resource,
    ResourceType,
    group,
    topic,
    transactional_id,
)
from qbus.broker.broker import Broker
from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.peer import Peer, Principal
from qbus.broker.startup import running_broker
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.errors import ErrorCode
from qbus.security.acls import Decision, Entry, Pattern, Permission, Rule, index_of
from qbus.wire import API, ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_configs,
    describe_delayed,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from tests.support.logs import batch, transactional

ORDERS = topic("orders")
READERS = group("readers")
ALICE = Principal("User", "alice")

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TX = transactional_id("tx")
TX_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Asked = tuple[Operation, Resource]


class Denying:
    """Denies everything but what it is told to allow, by real rules; notes what it was asked."""

    def __init__(self, *allowed: Asked) -> None:
        self.asked: list[Asked] = []
        rules = [
            Rule(Pattern(*resource), Entry(str(ALICE), "10.0.0.1", operation, Permission.ALLOW))
            for operation, resource in allowed
        ]
        self._rules = AclAuthorizer(index_of(rules))
        self.rules = self._rules.rules

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        assert (principal, host) == (ALICE, "10.0.0.1")
        self.asked.append((operation, resource))
        return self._rules.is_allowed(principal, host, operation, resource)

    def is_allowed_for_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        assert (principal, host) == (ALICE, "10.0.0.1")
        return self._rules.is_allowed_for_any(principal, host, operation, kind)

    def explain(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> Decision:
        return self._rules.explain(principal, host, operation, resource)


class Case(NamedTuple):
    """A request, what it needs, and the error of a client that is denied all."""

    key: ApiKey
    version: int
    request: dict[str, Any]
    needs: Asked
    error: ErrorCode


def _cases() -> Iterator[Case]:
    one = [0]
    yield Case(
        ApiKey.PRODUCE,
        9,
        {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                produce.TopicProduceData(
                    name="orders",
                    partition_data=[produce.PartitionProduceData(index=0, records=batch(b"a"))],
                )
            ],
        },
        (Operation.WRITE, ORDERS),
        TOPIC_DENIED,
    )
    wanted = fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    yield Case(
        ApiKey.FETCH,
        12,
        {"topics": [fetch.FetchTopic(topic="orders", partitions=[wanted])]},
        (Operation.READ, ORDERS),
        TOPIC_DENIED,
    )
    yield Case(
        ApiKey.FETCH,
        15,
        {"replica_state": fetch.ReplicaState(replica_id=2, replica_epoch=1)},
        (Operation.CLUSTER_ACTION, CLUSTER),
        CLUSTER_DENIED,
    )
    places = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    yield Case(
        ApiKey.LIST_OFFSETS,
        5,
        {
            "replica_id": -1,
            "topics": [list_offsets.ListOffsetsTopic(name="orders", partitions=places)],
        },
        (Operation.DESCRIBE, ORDERS),
        TOPIC_DENIED,
    )
    for name, operation, resource in (
        ("orders", Operation.DESCRIBE, ORDERS),
        ("new-topic", Operation.CREATE, topic("new-topic")),
    ):
        yield Case(
            ApiKey.METADATA,
            8,
            {"topics": [metadata.MetadataRequestTopic(name=name)]},
            (operation, resource),
            TOPIC_DENIED,
        )
    position = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    yield Case(
        ApiKey.OFFSET_COMMIT,
        8,
        {
            "group_id": "readers",
            "topics": [
                offset_commit.OffsetCommitRequestTopic(name="orders", partitions=[position])
            ],
        },
        (Operation.READ, READERS),
        GROUP_DENIED,
    )
    asked = offset_fetch.OffsetFetchRequestTopics(name="orders", partition_indexes=one)
    yield Case(
        ApiKey.OFFSET_FETCH,
        9,
        {"groups": [offset_fetch.OffsetFetchRequestGroup(group_id="readers", topics=[asked])]},
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )
    yield Case(
        ApiKey.FIND_COORDINATOR,
        4,
        {"coordinator_keys": ["readers"]},
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )
    member = {"group_id": "readers", "member_id": "m"}
    for key, version, request in (
        (
            ApiKey.JOIN_GROUP,
            5,
            member | {"session_timeout_ms": 6000, "protocol_type": "consumer"},
        ),
        (ApiKey.SYNC_GROUP, 4, member | {"generation_id": 1}),
        (ApiKey.HEARTBEAT, 4, member | {"generation_id": 1}),
        (ApiKey.LEAVE_GROUP, 2, member),
    ):
        yield Case(key, version, request, (Operation.READ, READERS), GROUP_DENIED)
    yield Case(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["readers"]},
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )
    yield Case(
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["readers"]},
        (Operation.DELETE, READERS),
        GROUP_DENIED,
    )
    yield Case(
        ApiKey.OFFSET_DELETE,
        0,
        {
            "group_id": "readers",
            "topics": [
                offset_delete.OffsetDeleteRequestTopic(
                    name="orders",
                    partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
                )
            ],
        },
        (Operation.DELETE, READERS),
        GROUP_DENIED,
    )
    created = create_topics.CreatableTopic(name="new-topic", num_partitions=1, replication_factor=1)
    yield Case(
        ApiKey.CREATE_TOPICS,
        5,
        {"topics": [created]},
        (Operation.CREATE, topic("new-topic")),
        TOPIC_DENIED,
    )
    yield Case(
        ApiKey.DELETE_TOPICS,
        5,
        {"topic_names": ["orders"], "timeout_ms": 1000},
        (Operation.DELETE, ORDERS),
        TOPIC_DENIED,
    )
    gone = delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    yield Case(
        ApiKey.DELETE_RECORDS,
        2,
        {
            "topics": [delete_records.DeleteRecordsTopic(name="orders", partitions=[gone])],
            "timeout_ms": 1000,
        },
        (Operation.DELETE, ORDERS),
        TOPIC_DENIED,
    )
    more = create_partitions.CreatePartitionsTopic(name="orders", count=5, assignments=None)
    yield Case(
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [more], "timeout_ms": 1000},
        (Operation.ALTER, ORDERS),
        TOPIC_DENIED,
    )
    yield Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None, "transaction_timeout_ms": 0},
        (Operation.IDEMPOTENT_WRITE, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": "tx", "transaction_timeout_ms": 0},
        (Operation.WRITE, transactional_id("tx")),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    epochs = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    yield Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "topics": [
                offset_for_leader_epoch.OffsetForLeaderTopic(topic="orders", partitions=epochs)
            ]
        },
        (Operation.DESCRIBE, ORDERS),
        TOPIC_DENIED,
    )
    for kind, name, resource, error in (
        (2, "orders", ORDERS, TOPIC_DENIED),
        (4, "1", CLUSTER, CLUSTER_DENIED),
    ):
        yield Case(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {
                "resources": [
                    describe_configs.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                ]
            },
            (Operation.DESCRIBE_CONFIGS, resource),
            error,
        )
        yield Case(
            ApiKey.ALTER_CONFIGS,
            2,
            {
                "resources": [
                    alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
                ]
            },
            (Operation.ALTER_CONFIGS, resource),
            error,
        )
        changed = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name
        )
        yield Case(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [changed]},
            (Operation.ALTER_CONFIGS, resource),
            error,
        )
    yield Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {
            "dirs": [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(
                            name="orders", partitions=[0]
                        )
                    ],
                )
            ]
        },
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        {"topics": None},
        (Operation.DESCRIBE, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": None},
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": []},
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"topics": None},
        (Operation.DESCRIBE, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [describe_producers.TopicRequest(name="orders", partition_indexes=one)]},
        (Operation.READ, ORDERS),
        TOPIC_DENIED,
    )
    yield Case(
        ApiKey.DESCRIBE_DELAYED,
        0,
        {
            "topics": [
                describe_delayed.TopicRequest(
                    name="orders",
                    partitions=[describe_delayed.PartitionRequest(partition_index=0, limit=5)],
                )
            ]
        },
        (Operation.READ, ORDERS),
        TOPIC_DENIED,
    )
    yield Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {
            "topics": [describe_topic_partitions.TopicRequest(name="orders")],
            "response_partition_limit": 100,
        },
        (Operation.DESCRIBE, ORDERS),
        TOPIC_DENIED,
    )


def _share_cases() -> Iterator[Case]:
    names = {"group_id": "readers", "member_id": "m"}
    yield Case(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        names | {"subscribed_topic_names": ["orders"]},
        (Operation.READ, READERS),
        GROUP_DENIED,
    )
    yield Case(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        {"group_ids": ["readers"]},
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )
    for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        yield Case(key, 1, names, (Operation.READ, READERS), GROUP_DENIED)
    yield Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {
            "groups": [
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    group_id="readers", topics=None
                )
            ]
        },
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )
    for key, needs in (
        (ApiKey.ALTER_SHARE_GROUP_OFFSETS, Operation.READ),
        (ApiKey.DELETE_SHARE_GROUP_OFFSETS, Operation.DELETE),
    ):
        yield Case(key, 0, {"group_id": "readers"}, (needs, READERS), GROUP_DENIED)
    for action, needed, error in (
        (0, (Operation.DESCRIBE, READERS), GROUP_DENIED),
        (2, (Operation.CLUSTER_ACTION, CLUSTER), CLUSTER_DENIED),
    ):
        request = {"action": action, "group_id": "readers", "topics": None}
        yield Case(ApiKey.QUEUE_OFFSETS, 0, request, needed, error)


def _transaction_cases() -> Iterator[Case]:
    producer: dict[str, Any] = {
        "transactional_id": "tx",
        "producer_id": 1,
        "producer_epoch": 0,
    }
    orders = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    yield Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {f"v3_and_below_{name}": value for name, value in producer.items()}
        | {"v3_and_below_topics": orders},
        (Operation.WRITE, TX),
        TX_DENIED,
    )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(**producer, topics=orders)
    yield Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        {"transactions": [transaction]},
        (Operation.CLUSTER_ACTION, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        producer | {"group_id": "readers"},
        (Operation.WRITE, TX),
        TX_DENIED,
    )
    yield Case(ApiKey.END_TXN, 5, producer, (Operation.WRITE, TX), TX_DENIED)
    position = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="orders", partitions=[position])]
    yield Case(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        producer | {"group_id": "readers", "topics": topics},
        (Operation.WRITE, TX),
        TX_DENIED,
    )
    yield Case(
        ApiKey.END_GROUP_TRANSACTION,
        0,
        {"group_id": "readers", "producer_id": 1, "producer_epoch": 0, "committed": True},
        (Operation.CLUSTER_ACTION, CLUSTER),
        CLUSTER_DENIED,
    )
    ended = write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    yield Case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {"markers": [write_txn_markers.WritableTxnMarker(producer_id=1, topics=[ended])]},
        (Operation.CLUSTER_ACTION, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["tx"]},
        (Operation.DESCRIBE, TX),
        TX_DENIED,
    )
    yield Case(
        ApiKey.FIND_COORDINATOR,
        4,
        {"coordinator_keys": ["tx"], "key_type": 1},
        (Operation.DESCRIBE, TX),
        TX_DENIED,
    )


def _consumer_cases() -> Iterator[Case]:
    yield Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "readers",
            "member_id": "m",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["orders"],
        },
        (Operation.READ, READERS),
        GROUP_DENIED,
    )
    yield Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["readers"]},
        (Operation.DESCRIBE, READERS),
        GROUP_DENIED,
    )


def _acl_cases() -> Iterator[Case]:
    wanted: dict[str, Any] = {
        "resource_type_filter": 2,
        "resource_name_filter": "orders",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Case(ApiKey.DESCRIBE_ACLS, 3, wanted, (Operation.DESCRIBE, CLUSTER), CLUSTER_DENIED)
    yield Case(
        ApiKey.DELETE_ACLS,
        3,
        {"filters": [delete_acls.DeleteAclsFilter(**wanted)]},
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )
    rule = create_acls.AclCreation(
        resource_type=2,
        resource_name="orders",
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    yield Case(
        ApiKey.CREATE_ACLS, 3, {"creations": [rule]}, (Operation.ALTER, CLUSTER), CLUSTER_DENIED
    )


def _user_cases() -> Iterator[Case]:
    yield Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": None},
        (Operation.DESCRIBE, CLUSTER),
        CLUSTER_DENIED,
    )
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name="alice", mechanism=1)
    yield Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [deletion]},
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )


def _cluster_cases() -> Iterator[Case]:
    yield Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [], "strict": False},
        (Operation.DESCRIBE_CONFIGS, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                alter_client_quotas.EntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="a")],
                    ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)],
                )
            ]
        },
        (Operation.ALTER_CONFIGS, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.UPDATE_FEATURES,
        1,
        {"feature_updates": []},
        (Operation.ALTER, CLUSTER),
        CLUSTER_DENIED,
    )
    yield Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        {"resource_types": []},
        (Operation.DESCRIBE_CONFIGS, CLUSTER),
        CLUSTER_DENIED,
    )


CASES = [
    *_acl_cases(),
    *_user_cases(),
    *_cluster_cases(),
    *_cases(),
    *_consumer_cases(),
    *_share_cases(),
    *_transaction_cases(),
]

HIDES = {ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_TRANSACTIONS}
"""APIs that leave out what a client may not see, and refuse nothing."""

FOR_ALL = {
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_QUORUM,  # which there is not
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}
"""APIs that nobody is denied, as in Kafka: clients ask for them at the start."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig({"log.dirs": [str(tmp_path)]})
    listening = [ListenerInfo.plaintext("127.0.0.1", 9)]
    async with running_broker(config, SystemClock(), listening) as broker:
        await ask(
            broker,
            None,
            ApiKey.CREATE_TOPICS,
            5,
            {
                "topics": [
                    create_topics.CreatableTopic(
                        name="orders", num_partitions=1, replication_factor=1
                    )
                ]
            },
        )
        (commit,) = (case for case in CASES if case.key is ApiKey.OFFSET_COMMIT)
        await ask(broker, None, commit.key, commit.version, commit.request)
        yield broker


async def ask(
    broker: Broker, authorizer: Denying | None, key: ApiKey, version: int, request: dict[str, Any]
) -> Struct:
    """What a client gets, over the bytes of both messages."""
    message = API[key].request(**request)
    frame = b"".join(map(bytes, encode_request(key, version, 7, "test", message)))[4:]
    peer = Peer(1, "10.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9), principal=ALICE)
    access = AccessControl(authorizer)
    reply = Dispatcher(broker, access)(peer, memoryview(bytearray(frame)))
    assert reply is not None
    if not isinstance(reply, list):
        answered = asyncio.Event()
        reply.on_done(answered.set)
        await asyncio.wait_for(answered.wait(), 10)
        reply = reply.result()
    sent = b"".join(
        bytes(p) if isinstance(p, bytes | bytearray | memoryview) else b"" for p in reply
    )
    response: Struct = decode_response(key, version, memoryview(sent)[4:])[1]
    return response


def errors_in(message: object) -> set[ErrorCode]:
    """All error codes anywhere in a response."""
    if isinstance(message, list):
        return {error for part in message for error in errors_in(part)}
    if not isinstance(message, Struct):
        return set()
    names = vars(type(message)).get("__slots__", ())
    found = {error for name in names for error in errors_in(getattr(message, name))}
    codes = (getattr(message, name) for name in names if name.endswith("error_code"))
    return found | {ErrorCode(code) for code in codes if code}


def state(broker: Broker) -> tuple[object, ...]:
    """What no denied request may change."""
    partition = broker.replicas.leader_of("orders", 0)
    known = broker.metadata.topics
    log = partition.log
    return (
        sorted(known),
        known["orders"].config,
        len(known["orders"].partitions),
        (log.log_start_offset, log.log_end_offset),
        broker.groups.states(),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key.name}-{case.needs[0].name}")
async def test_a_denied_client_gets_the_error_and_changes_nothing(
    broker: Broker, case: Case
) -> None:
    before, denying = state(broker), Denying((Operation.DESCRIBE, topic("new-topic")))
    response = await ask(broker, denying, case.key, case.version, case.request)
    assert case.needs in denying.asked
    assert errors_in(response) == {case.error}
    assert state(broker) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key.name}-{case.needs[0].name}")
async def test_one_permission_is_enough_not_to_be_refused_for_it(
    broker: Broker, case: Case
) -> None:
    new = topic("new-topic")
    more = (Operation.DESCRIBE, new), (Operation.DESCRIBE_CONFIGS, new)
    allowing = Denying(case.needs, *more)
    response = await ask(broker, allowing, case.key, case.version, case.request)
    others = {TOPIC_DENIED} if case.needs[1] == READERS else set()
    assert case.error not in errors_in(response) - others


def test_no_api_is_forgotten() -> None:
    assert {case.key for case in CASES} | HIDES | FOR_ALL == set(API)


async def test_all_topics_are_those_that_a_client_may_describe(broker: Broker) -> None:
    hidden: Any = await ask(broker, Denying(), ApiKey.METADATA, 8, {"topics": None})
    shown: Any = await ask(
        broker, Denying((Operation.DESCRIBE, ORDERS)), ApiKey.METADATA, 8, {"topics": None}
    )
    assert [one.name for one in hidden.topics] == []
    assert [one.name for one in shown.topics] == ["orders"]


async def test_all_groups_are_those_that_a_client_may_describe(broker: Broker) -> None:
    seen = {}
    for name, allowed in (
        ("nothing", ()),
        ("the group", ((Operation.DESCRIBE, READERS),)),
        ("the cluster", ((Operation.DESCRIBE, CLUSTER),)),
    ):
        response: Any = await ask(broker, Denying(*allowed), ApiKey.LIST_GROUPS, 4, {})
        seen[name] = [one.group_id for one in response.groups]
    assert seen == {"nothing": [], "the group": ["readers"], "the cluster": ["readers"]}


async def test_a_client_is_told_what_it_may_do(broker: Broker) -> None:
    allowing = Denying((Operation.ALTER, CLUSTER), (Operation.DESCRIBE, CLUSTER))
    request = {"include_cluster_authorized_operations": True}
    response: Any = await ask(broker, allowing, ApiKey.DESCRIBE_CLUSTER, 1, request)
    expected = 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    assert response.cluster_authorized_operations == expected


async def test_a_topic_is_refused_within_a_group_that_is_not(broker: Broker) -> None:
    (case,) = (case for case in CASES if case.key is ApiKey.OFFSET_COMMIT)
    allowing = Denying((Operation.READ, READERS))
    response = await ask(broker, allowing, case.key, case.version, case.request)
    assert errors_in(response) == {TOPIC_DENIED}


async def test_without_an_authorizer_everything_is_allowed(broker: Broker) -> None:
    (case,) = (case for case in CASES if case.key is ApiKey.PRODUCE)
    response = await ask(broker, None, case.key, case.version, case.request)
    assert errors_in(response) == set()


# What a client is not told

ALL_BUT_TOPICS: tuple[Asked, ...] = (
    (Operation.ALL, READERS),
    (Operation.ALL, TX),
    (Operation.IDEMPOTENT_WRITE, CLUSTER),
)


def renamed(part: Any, former: str, name: str) -> Any:
    """A copy of a request or a response with another topic in it."""
    if isinstance(part, list):
        return [renamed(one, former, name) for one in part]
    if isinstance(part, dict):
        return {key: renamed(one, former, name) for key, one in part.items()}
    if isinstance(part, Struct):
        names = vars(type(part))["__slots__"]
        return type(part)(**{one: renamed(getattr(part, one), former, name) for one in names})
    return name if part == former else part


NAMING = [case for case in CASES if renamed(case.request, "orders", "absent") != case.request]


@pytest.mark.parametrize("case", NAMING, ids=lambda case: f"{case.key.name}-{case.needs[0].name}")
async def test_nobody_learns_whether_a_topic_exists_that_one_may_not_describe(
    broker: Broker, case: Case
) -> None:
    answers = []
    for name in ("orders", "absent"):
        request = renamed(case.request, "orders", name)
        denying = Denying(*ALL_BUT_TOPICS)
        answer = await ask(broker, denying, case.key, case.version, request)
        answers.append(renamed(answer, name, "orders"))
    assert answers[0] == answers[1]


async def test_a_topic_deleted_by_its_id_keeps_its_name_from_who_may_not_describe_it(
    broker: Broker,
) -> None:
    topic_id = broker.metadata.topics["orders"].id
    wanted = delete_topics.DeleteTopicState(name=None, topic_id=topic_id)
    names = []
    for allowed in ((), ((Operation.DESCRIBE, ORDERS),)):
        response: Any = await ask(
            broker, Denying(*allowed), ApiKey.DELETE_TOPICS, 6, {"topics": [wanted]}
        )
        (result,) = response.responses
        assert result.error_code == TOPIC_DENIED
        names.append(result.name)
    assert names == [None, "orders"]


async def test_metadata_by_id_tell_no_name(broker: Broker) -> None:
    topic_id = broker.metadata.topics["orders"].id
    wanted = metadata.MetadataRequestTopic(name=None, topic_id=topic_id)
    response: Any = await ask(broker, Denying(), ApiKey.METADATA, 12, {"topics": [wanted]})
    (result,) = response.topics
    assert (result.error_code, result.name, result.partitions) == (TOPIC_DENIED, None, [])


async def test_a_topic_is_not_created_for_who_may_not_describe_it(broker: Broker) -> None:
    request = {"topics": [metadata.MetadataRequestTopic(name="new-topic")]}
    may_create = Denying((Operation.CREATE, CLUSTER))
    response = await ask(broker, may_create, ApiKey.METADATA, 8, request)
    assert errors_in(response) == {TOPIC_DENIED}
    assert "new-topic" not in broker.metadata.topics
    may = Denying((Operation.CREATE, CLUSTER), (Operation.DESCRIBE, topic("new-topic")))
    assert errors_in(await ask(broker, may, ApiKey.METADATA, 8, request)) == set()
    assert "new-topic" in broker.metadata.topics


async def test_who_may_not_describe_the_cluster_may_do_nothing_to_it(broker: Broker) -> None:
    for key, version in ((ApiKey.DESCRIBE_CLUSTER, 1), (ApiKey.METADATA, 10)):
        request: dict[str, Any] = {"include_cluster_authorized_operations": True}
        if key is ApiKey.METADATA:
            request["topics"] = []
        denying = Denying((Operation.CREATE, CLUSTER))
        response: Any = await ask(broker, denying, key, version, request)
        assert response.cluster_authorized_operations == 0


async def test_who_may_create_need_not_see_the_configuration(broker: Broker) -> None:
    new = topic("new-topic")
    created = create_topics.CreatableTopic(name="new-topic", num_partitions=1, replication_factor=1)
    response: Any = await ask(
        broker, Denying((Operation.CREATE, new)), ApiKey.CREATE_TOPICS, 7, {"topics": [created]}
    )
    (result,) = response.topics
    assert result.error_code == ErrorCode.NONE
    assert result.topic_config_error_code == TOPIC_DENIED
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


# Other ways to a permission


async def test_who_may_write_to_any_topic_gets_a_producer_id(broker: Broker) -> None:
    request = {"transactional_id": None, "transaction_timeout_ms": 0}
    for allowed, expected in (
        ((Operation.WRITE, topic("some-topic")), set()),
        ((Operation.READ, ORDERS), {CLUSTER_DENIED}),
    ):
        response = await ask(broker, Denying(allowed), ApiKey.INIT_PRODUCER_ID, 4, request)
        assert errors_in(response) == expected


async def test_who_may_delete_all_topics_may_delete_one(broker: Broker) -> None:
    request = {"topic_names": ["orders"], "timeout_ms": 1000}
    may = Denying((Operation.DELETE, CLUSTER))
    assert errors_in(await ask(broker, may, ApiKey.DELETE_TOPICS, 5, request)) == set()
    assert "orders" not in broker.metadata.topics


async def test_brokers_may_look_up_epochs_of_every_topic(broker: Broker) -> None:
    (case,) = (case for case in CASES if case.key is ApiKey.OFFSET_FOR_LEADER_EPOCH)
    may = Denying((Operation.CLUSTER_ACTION, CLUSTER))
    assert errors_in(await ask(broker, may, case.key, case.version, case.request)) == set()


async def test_a_batch_of_a_transaction_refuses_the_whole_request(broker: Broker) -> None:
    batches = [transactional(b"a", producer_id=1, sequence=0), batch(b"b")]
    topics = [
        produce.TopicProduceData(
            name="orders",
            partition_data=[
                produce.PartitionProduceData(index=index, records=bytes(one))
                for index, one in enumerate(batches)
            ],
        )
    ]
    for name in ("tx", None):
        request = {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": topics,
            "transactional_id": name,
        }
        response: Any = await ask(
            broker, Denying((Operation.WRITE, ORDERS)), ApiKey.PRODUCE, 9, request
        )
        answers = response.responses[0].partition_responses
        assert [one.error_code for one in answers] == [TX_DENIED] * 2
    assert broker.replicas.leader_of("orders", 0).log.log_end_offset == 0


async def test_a_follower_that_is_none_gets_no_record(broker: Broker) -> None:
    wanted = fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request = {
        "replica_state": fetch.ReplicaState(replica_id=2, replica_epoch=1),
        "topics": [
            fetch.FetchTopic(topic_id=broker.metadata.topics["orders"].id, partitions=[wanted])
        ],
    }
    for allowed in ((), ((Operation.READ, ORDERS),)):
        response = await ask(broker, Denying(*allowed), ApiKey.FETCH, 15, request)
        assert errors_in(response) == {TOPIC_DENIED}


async def test_an_election_is_refused_in_its_first_version_too(broker: Broker) -> None:
    wanted = [elect_leaders.TopicPartitions(topic="orders", partitions=[0])]
    response = await ask(broker, Denying(), ApiKey.ELECT_LEADERS, 0, {"topic_partitions": wanted})
    assert errors_in(response) == {CLUSTER_DENIED}


async def test_a_pattern_matches_only_what_its_member_may_describe(broker: Broker) -> None:
    names = ("secret-a", "public-b")
    for name in names:
        created = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        await ask(broker, None, ApiKey.CREATE_TOPICS, 5, {"topics": [created]})
    join: dict[str, Any] = {
        "group_id": "readers-2",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_regex": "secret-.*|public-.*",
        "topic_partitions": [],
    }
    may = Denying((Operation.READ, group("readers-2")), (Operation.DESCRIBE, topic("public-b")))
    response: Any = await ask(broker, may, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)
    assert response.error_code == ErrorCode.NONE
    assigned = {one.topic_id for one in response.assignment.topic_partitions}
    assert assigned == {broker.metadata.topics["public-b"].id}


async def test_an_authorized_client_sees_all_that_it_asks_for(broker: Broker) -> None:
    may = Denying((Operation.READ, ORDERS), (Operation.WRITE, ORDERS))
    request = {
        "topics": [metadata.MetadataRequestTopic(name="orders")],
        "include_topic_authorized_operations": True,
    }
    response: Any = await ask(broker, may, ApiKey.METADATA, 8, request)
    (found,) = response.topics
    expected = 1 << Operation.READ | 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    assert found.topic_authorized_operations == expected


# What the broker writes on behalf of a client

DEAD = topic("dead-letters")


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (32, "readers", "errors.deadletterqueue.topic.name"),
        (2, "orders", "qbus.delay.dead.letter.topic"),
    ],
)
async def test_dead_letters_go_nowhere_that_who_says_so_may_not_write_to(
    broker: Broker, kind: int, name: str, key: str
) -> None:
    change = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[incremental_alter_configs.AlterableConfig(name=key, value="dead-letters")],
    )
    owner = (Operation.ALTER_CONFIGS, READERS if kind == 32 else ORDERS)
    found = []
    for allowed in ((owner,), (owner, (Operation.WRITE, DEAD)), (owner,)):
        response = await ask(
            broker,
            Denying(*allowed),
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [change]},
        )
        found.append(errors_in(response))
    assert found == [{TOPIC_DENIED}, set(), set()]  # what is set already may be set again


async def test_nor_do_those_of_a_new_topic(broker: Broker) -> None:
    created = create_topics.CreatableTopic(
        name="new-topic",
        num_partitions=1,
        replication_factor=1,
        configs=[
            create_topics.CreatableTopicConfig(
                name="qbus.delay.dead.letter.topic", value="dead-letters"
            )
        ],
    )
    may = Denying((Operation.CREATE, CLUSTER))
    response = await ask(broker, may, ApiKey.CREATE_TOPICS, 5, {"topics": [created]})
    assert errors_in(response) == {TOPIC_DENIED}
    assert "new-topic" not in broker.metadata.topics
