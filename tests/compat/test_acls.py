"""Access rules that clients nobody here wrote add, list and remove, and that hold for them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka.admin
import kafka
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, NewTopic
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.compat

VOCABULARY: Any = confluent_kafka.admin  # whose types do not say that it exports its names
NOBODY = "User:ANONYMOUS"
TOPIC = "guarded"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clients may do what no rule concerns: so all begin as administrators."""
    directory = tmp_path_factory.mktemp("acls")
    options = (
        "authorizer.class.name=acl",
        "allow.everyone.if.no.acl.found=true",
        f"qbus.audit.log.path={directory / 'audit.log'}",
    )
    with BrokerProcess(
        directory / "data", *(word for one in options for word in ("-o", one))
    ) as it:
        admin = AdminClient({"bootstrap.servers": it.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(20)
        (future,) = admin.create_acls([confluent_rule(TOPIC, "ALL", "ALLOW")]).values()
        future.result(20)
        yield it


def confluent_rule(name: str, operation: str, permission: str, principal: str = NOBODY) -> Any:
    return VOCABULARY.AclBinding(
        VOCABULARY.ResourceType.TOPIC,
        name,
        VOCABULARY.ResourcePatternType.LITERAL,
        principal,
        "*",
        VOCABULARY.AclOperation[operation],
        VOCABULARY.AclPermissionType[permission],
    )


def confluent_filter(name: str | None = None, permission: str = "ANY") -> Any:
    return VOCABULARY.AclBindingFilter(
        VOCABULARY.ResourceType.ANY,
        name,
        VOCABULARY.ResourcePatternType.ANY,
        None,
        None,
        VOCABULARY.AclOperation.ANY,
        VOCABULARY.AclPermissionType[permission],
    )


def test_confluent_adds_lists_and_removes_rules(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    rules = [confluent_rule("c-1", "READ", "ALLOW", "User:a"), confluent_rule("c-1", "ALL", "DENY")]
    for future in admin.create_acls(rules).values():
        future.result(20)
    listed = admin.describe_acls(confluent_filter("c-1")).result(20)
    assert sorted(map(repr, listed)) == sorted(map(repr, rules))
    (future,) = admin.delete_acls([confluent_filter("c-1")]).values()
    assert sorted(map(repr, future.result(20))) == sorted(map(repr, rules))
    assert admin.describe_acls(confluent_filter("c-1")).result(20) == []


def test_kafka_python_adds_lists_and_removes_rules(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    pattern = ResourcePattern(ResourceType.GROUP, "k-", ACLResourcePatternType.PREFIXED)
    rule = ACL("User:k", "10.0.0.1", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    assert admin.create_acls([rule])["failed"] == []
    wanted = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.GROUP, "k-7", ACLResourcePatternType.MATCH),
    )
    found, error = admin.describe_acls(wanted)
    assert (found, error.errno) == ([rule], 0)
    ((_, matched, failure),) = admin.delete_acls([wanted])
    assert matched == [rule]
    assert failure.errno == 0
    assert admin.describe_acls(wanted)[0] == []
    admin.close()


def deliver(producer: Producer) -> int:
    """The error code of one record's delivery."""
    codes: list[int] = []

    def done(error: KafkaError | None, _: object) -> None:
        codes.append(0 if error is None else error.code())

    try:
        producer.produce(TOPIC, b"v", on_delivery=done)
    except KafkaException as error:  # it was told so before
        code: int = error.args[0].code()
        return code
    assert producer.flush(20) == 0
    return codes[0]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_rule_holds_at_once_for_a_producer_that_goes_on(broker: BrokerProcess, acks: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "acks": acks, "linger.ms": 0}
    producer = Producer(settings | {"topic.metadata.refresh.interval.ms": 200})
    denial = confluent_rule(TOPIC, "WRITE", "DENY")
    assert deliver(producer) == 0
    for _ in range(2):
        (future,) = admin.create_acls([denial]).values()
        future.result(20)
        assert deliver(producer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        (future,) = admin.delete_acls([confluent_filter(TOPIC, "DENY")]).values()
        future.result(20)
        wait_until(lambda: deliver(producer) == 0, "the client to ask for metadata again")


def test_a_topic_that_may_not_be_described_is_not_told_of(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.create_acls([confluent_rule(TOPIC, "DESCRIBE", "DENY")]).values()
    future.result(20)
    try:
        assert TOPIC not in admin.list_topics(timeout=20).topics
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
        assert TOPIC not in consumer.topics()
        consumer.close()
        named: Any = admin.list_topics(TOPIC, timeout=20).topics[TOPIC]
        assert named.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        (future,) = admin.delete_acls([confluent_filter(TOPIC, "DENY")]).values()
        future.result(20)
    assert TOPIC in admin.list_topics(timeout=20).topics


def test_who_may_not_alter_the_cluster_may_not_alter_rules(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def cluster(operation: str, principal: str) -> Any:
        return VOCABULARY.AclBinding(
            VOCABULARY.ResourceType.BROKER,
            "kafka-cluster",
            VOCABULARY.ResourcePatternType.LITERAL,
            principal,
            "*",
            VOCABULARY.AclOperation[operation],
            VOCABULARY.AclPermissionType.ALLOW,
        )

    (future,) = admin.create_acls([cluster("ALTER_CONFIGS", "User:other")]).values()
    future.result(20)  # from here on a rule concerns the cluster, and none allows
    for act in (
        lambda: admin.create_acls([cluster("ALTER", NOBODY)]),
        lambda: admin.delete_acls([confluent_filter()]),
    ):
        (future,) = act().values()
        with pytest.raises(KafkaException) as refusal:
            future.result(20)
        assert refusal.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_the_audit_log_tells_of_denials_and_of_changes(broker: BrokerProcess) -> None:
    path = broker.data_dir.parent / "audit.log"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    def has(matches: Callable[[dict[str, Any]], bool]) -> bool:
        return any(map(matches, events()))

    wait_until(
        lambda: has(lambda one: one.get("request") == "PRODUCE" and one["allowed"] is False),
        "the denied produce in the audit log",
    )
    wait_until(lambda: has(lambda one: one.get("action") == "add access rule"), "the added rule")
    assert has(lambda one: one.get("request") == "CREATE_TOPICS" and one["allowed"] is True)
    assert not has(lambda one: one.get("request") == "PRODUCE" and one["allowed"] is True)
