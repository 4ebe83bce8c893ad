"""Access control: asks once for each client and question, forgets with the rules, and records."""

import logging
from typing import Any

import pytest

from qbus.broker.audit import Caller
from qbus.broker.authorization import (
    AccessControl,
    AclAuthorizer,
    Operation,
    ResourceType,
    Sight,
    group,
    topic,
)
from qbus.broker.net.peer import Grants, Peer, Principal
from qbus.config import ListenerInfo
from qbus.security.acls import AclIndex, Entry, Pattern, Permission

ALICE = Principal("User", "alice")
ORDERS = Pattern(ResourceType.TOPIC, "orders")
READ, WRITE = Operation.READ, Operation.WRITE


class Asked(AclAuthorizer):
    """Counts how often it is asked."""

    times = 0

    def is_allowed(self, *question: Any) -> bool:
        self.times += 1
        return super().is_allowed(*question)


class Noting:
    """Stands for the audit log."""

    def __init__(self, *, samples: bool = False) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._samples = samples

    def samples(self) -> bool:
        return self._samples

    def authorization(self, caller: Caller, *event: Any) -> None:
        self.events.append((caller.request, *event[:2], event[2].allowed, str(event[2])))


def peer(principal: Principal = ALICE, host: str = "10.0.0.1") -> Peer:
    return Peer(1, host, ListenerInfo.plaintext("127.0.0.1", 9092), principal=principal)


def let(rules: AclIndex, *operations: Operation, permission: Permission = Permission.ALLOW) -> None:
    rules.put(ORDERS, [Entry(str(ALICE), "*", one, permission) for one in operations])


@pytest.fixture
def rules() -> AclIndex:
    return AclIndex(["User:root"])


def caller(request: str = "FETCH", *, administers: bool = False) -> Caller:
    return Caller(ALICE, "10.0.0.1", "test", request, administers)


def test_the_same_question_of_a_client_is_asked_once(rules: AclIndex) -> None:
    authorizer, client = Asked(rules), peer()
    access = AccessControl(authorizer)
    let(rules, READ)
    for _ in range(3):
        assert access.allows_peer(client, READ, topic("orders"))
        assert not access.allows_peer(client, WRITE, topic("orders"))
    assert authorizer.times == 2


def test_what_was_decided_goes_with_the_rules(rules: AclIndex) -> None:
    access, client = AccessControl(AclAuthorizer(rules)), peer()
    answers = []
    for change in (READ, WRITE, READ):
        let(rules, change)
        answers.append(access.allows_peer(client, READ, topic("orders")))
    let(rules, READ, permission=Permission.DENY)
    answers.append(access.allows_peer(client, READ, topic("orders")))
    assert answers == [True, False, True, False]


def test_a_client_that_authenticates_anew_is_asked_for_anew(rules: AclIndex) -> None:
    access, client = AccessControl(AclAuthorizer(rules)), peer()
    let(rules, READ)
    assert access.allows_peer(client, READ, topic("orders"))
    client.principal = Principal("User", "bob")
    client.grants.clear()
    assert not access.allows_peer(client, READ, topic("orders"))


def test_what_is_remembered_of_a_client_is_bounded() -> None:
    grants = Grants()
    for number in range(50_000):
        grants.keep(number, allowed=True)
    assert len(grants.decisions) <= 10_000


def test_without_an_authorizer_nothing_is_restricted() -> None:
    access = AccessControl()
    assert not access.is_restricted
    assert access.allows_peer(peer(), READ, topic("orders"))
    assert access.allows_any(ALICE, "10.0.0.1", WRITE, ResourceType.TOPIC)
    assert access.rules.version == 0


def test_denials_are_counted_and_recorded(rules: AclIndex) -> None:
    audit: Any = Noting()
    access = AccessControl(AclAuthorizer(rules), audit)
    assert not access.check(peer(), READ, group("readers"), caller("HEARTBEAT"))
    assert access.denied == 1
    assert audit.events == [
        ("HEARTBEAT", READ, group("readers"), False, "no rule concerns the resource")
    ]


def test_a_client_that_is_denied_again_and_again_does_not_fill_the_brokers_log(
    rules: AclIndex, caplog: pytest.LogCaptureFixture
) -> None:
    access = AccessControl(AclAuthorizer(rules))
    with caplog.at_level(logging.INFO):
        for _ in range(500):
            access.check(peer(), READ, topic("orders"), caller())
    assert access.denied == 500
    (line,) = caplog.messages
    assert line.startswith(
        "User:alice from 10.0.0.1 may not READ topic 'orders', which FETCH asks for: no rule"
    )


def test_what_is_allowed_is_recorded_of_administration_or_by_sampling(rules: AclIndex) -> None:
    let(rules, READ)
    for samples, administers, expected in (
        (False, False, 0),
        (True, False, 1),
        (False, True, 1),
    ):
        audit: Any = Noting(samples=samples)
        access = AccessControl(AclAuthorizer(rules), audit)
        assert access.check(peer(), READ, topic("orders"), caller(administers=administers))
        assert len(audit.events) == expected
        assert access.denied == 0


def test_administration_is_recorded_where_nothing_is_restricted() -> None:
    audit: Any = Noting()
    access = AccessControl(None, audit)
    assert access.is_restricted  # so that it is asked at all
    assert access.check(peer(), Operation.CREATE, topic("new"), caller(administers=True))
    (event,) = audit.events
    assert event[3:] == (True, "nothing is restricted here: there is no authorizer")


def test_brokers_are_known_by_their_principal() -> None:
    broker = Principal("User", "broker")
    access = AccessControl(None, None, {broker})
    assert access.is_broker(Principal("User", "broker"))
    assert not access.is_broker(Principal("Group", "broker"))


def test_a_sight_changes_with_the_rules_and_with_its_client(rules: AclIndex) -> None:
    access = AccessControl(AclAuthorizer(rules))
    let(rules, READ)
    sight = Sight(access, ALICE, "10.0.0.1")
    assert sight.sees("orders")
    assert not sight.sees("payments")
    assert sight == Sight(access, ALICE, "10.0.0.1")
    assert sight != Sight(access, Principal("User", "bob"), "10.0.0.1")
    let(rules, Operation.CREATE)
    assert sight != Sight(access, ALICE, "10.0.0.1")
    assert not sight.sees("orders")  # by the rules of now
