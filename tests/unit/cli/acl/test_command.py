"""`qbus acl`: rules, in Kafka's words."""

import json

import pytest

from qbus.security.acls import (
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from tests.unit.cli.security_fakes import FakeSecurity, failure, put_in_place, run

ALICE = ("--principal", "User:alice")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeSecurity:
    return put_in_place(monkeypatch)


def rule(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Rule:
    return Rule(Pattern(kind, name, pattern), Entry(principal, host, operation, permission))


TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def add(*arguments: str) -> None:
    result = run("acl", "add", *arguments)
    assert result.exit_code == 0, result.output


def test_a_rule_for_each_combination(cluster: FakeSecurity) -> None:
    add(*ALICE, "--operation", "write", "--operation", "Read", "--topic", "a", "--topic", "b")
    assert set(cluster.rules) == {
        rule(TOPIC, name, operation)
        for name in ("a", "b")
        for operation in (Operation.WRITE, Operation.READ)
    }


@pytest.mark.parametrize("word", ["describe-configs", "DescribeConfigs", "DESCRIBE_CONFIGS"])
def test_operations_as_anybody_writes_them(cluster: FakeSecurity, word: str) -> None:
    add(*ALICE, "--operation", word, "--cluster")
    wanted = rule(ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE_CONFIGS)
    assert list(cluster.rules) == [wanted]


@pytest.mark.parametrize("option", [["--prefix"], ["--resource-pattern-type", "prefixed"]])
def test_prefixes_denials_and_hosts(cluster: FakeSecurity, option: list[str]) -> None:
    add(*ALICE, "--operation", "all", "--group", "g", *option, "--deny", "--host", "10.0.0.1")
    wanted = rule(
        GROUP,
        "g",
        Operation.ALL,
        pattern=PatternType.PREFIXED,
        host="10.0.0.1",
        permission=Permission.DENY,
    )
    assert list(cluster.rules) == [wanted]


def test_what_a_producer_needs(cluster: FakeSecurity) -> None:
    add(*ALICE, "--producer", "--topic", "t", "--transactional-id", "x")
    ids = ResourceType.TRANSACTIONAL_ID
    assert set(cluster.rules) == {
        rule(TOPIC, "t", Operation.WRITE),
        rule(TOPIC, "t", Operation.DESCRIBE),
        rule(TOPIC, "t", Operation.CREATE),
        rule(ids, "x", Operation.WRITE),
        rule(ids, "x", Operation.DESCRIBE),
    }


def test_what_a_consumer_needs(cluster: FakeSecurity) -> None:
    add(*ALICE, "--consumer", "--topic", "t", "--group", "g")
    assert set(cluster.rules) == {
        rule(TOPIC, "t", Operation.READ),
        rule(TOPIC, "t", Operation.DESCRIBE),
        rule(GROUP, "g", Operation.READ),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--operation", "read", "--topic", "t"], "--principal User:NAME"),
        ([*ALICE, "--topic", "t"], "--operation, --producer or --consumer"),
        ([*ALICE, "--operation", "read"], "--topic, --group, --transactional-id or --cluster"),
        ([*ALICE, "--operation", "cluster-action", "--topic", "t"], "means nothing for a topic"),
        ([*ALICE, "--operation", "shred", "--topic", "t"], "'shred' is no operation; there are"),
        ([*ALICE, "--consumer", "--topic", "t"], "--consumer needs --group"),
        ([*ALICE, "--producer", "--group", "t"], "--producer needs --topic"),
        (["--principal", "alice", "--operation", "read", "--topic", "t"], "User:NAME"),
        ([*ALICE, "--operation", "read", "--topic", ""], "The name of a topic is empty."),
    ],
)
def test_what_is_not_understood(cluster: FakeSecurity, arguments: list[str], said: str) -> None:
    assert said in failure(["acl", "add", *arguments], 2)
    assert not cluster.rules


def listed(*arguments: str) -> list[str]:
    documents = json.loads(run("acl", "list", *arguments, "--json").stdout)
    return [f"{one['principal']} {one['operation']} {one['resource_name']}" for one in documents]


def test_rules_are_listed_by_what_they_are_about(cluster: FakeSecurity) -> None:
    assert run("acl", "list").stderr == "No such rules.\n"
    add(*ALICE, "--operation", "read", "--topic", "orders")
    add(*ALICE, "--operation", "read", "--topic", "ord", "--prefix")
    add("--principal", "User:bob", "--operation", "write", "--topic", "*")
    assert len(listed()) == 3
    assert listed("--principal", "User:bob") == ["User:bob write *"]
    assert listed("--topic", "orders") == ["User:alice read orders"]
    assert len(listed("--topic", "orders", "--match")) == 3
    assert listed("--deny") == []
    assert "ord…" in run("acl", "list").stdout


def test_rules_are_removed(cluster: FakeSecurity) -> None:
    add(*ALICE, "--operation", "read", "--operation", "write", "--topic", "t")
    add(*ALICE, "--operation", "write", "--topic", "t", "--prefix")
    remove = ["acl", "remove", *ALICE, "--operation", "write", "--topic", "t"]
    assert "Would remove:" in run(*remove, "--dry-run").stdout
    assert len(cluster.rules) == 3
    assert run(*remove).stdout.startswith("Removed 1 rule:\n")
    assert rule(TOPIC, "t", Operation.WRITE) not in cluster.rules
    assert run(*remove).stdout == "There were no such rules.\n"
    assert run("acl", "remove", *ALICE).stdout.startswith("Removed 2 rules:\n")


def test_nothing_is_removed_by_accident(cluster: FakeSecurity) -> None:
    add(*ALICE, "--operation", "read", "--topic", "t")
    assert "Name which rules to remove, or --all." in failure(["acl", "remove"], 2)
    assert len(cluster.rules) == 1
    assert run("acl", "remove", "--all").exit_code == 0
    assert not cluster.rules


def check(*arguments: str, code: int = 0) -> str:
    result = run("acl", "check", *ALICE, *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_check_names_the_rule_that_decides(cluster: FakeSecurity) -> None:
    add(*ALICE, "--operation", "write", "--topic", "ord", "--prefix")
    read = ("--operation", "read", "--topic", "orders")
    assert check("--operation", "write", "--topic", "orders") == (
        "Allowed: User:alice write topic orders: prefixed topic 'ord' allows User:alice WRITE from"
        " every address.\n"
    )
    assert check("--operation", "describe", "--topic", "orders").startswith("Allowed: ")
    assert "but none allows it" in check(*read, code=3)
    add("--principal", "User:*", "--operation", "all", "--topic", "orders", "--deny")
    document = json.loads(check("--operation", "write", "--topic", "orders", "--json", code=3))[0]
    assert document["allowed"] is False
    assert document["rule"]["permission"] == "deny"
    assert document["rule"]["principal"] == "User:*"


def test_check_knows_what_brokers_are_told(cluster: FakeSecurity) -> None:
    read = ("--operation", "read", "--topic", "t")
    assert "no rule concerns the resource" in check(*read, code=3)
    cluster.settings = {"allow.everyone.if.no.acl.found": "true"}
    assert check(*read).startswith("Allowed: ")
    cluster.settings = {"super.users": "User:root;User:alice"}
    assert "the principal is a super user" in check(*read)
    cluster.may_read_settings = False
    assert "Denied" in check(*read, code=3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--operation", "read"], "--topic, --group, --transactional-id or --cluster"),
        (["--topic", "t"], "Missing option '--operation'"),
        (["--operation", "cluster-action", "--topic", "t"], "means nothing for a topic"),
    ],
)
def test_a_check_of_nothing_is_a_usage_error_and_no_permission(
    cluster: FakeSecurity, arguments: list[str], said: str
) -> None:
    assert said in failure(["acl", "check", *ALICE, *arguments], 2)
