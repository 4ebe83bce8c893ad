"""Rules and passwords change while brokers fail or the store is away: in doubt nobody is let in.

Three brokers and a ZooKeeper. What is asked of a broker are requests of a user that may do
everything but write to one topic, and of one that may do nothing else.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from qbus.errors import ErrorCode
from tests.support import zookeeper_process
from tests.support.ports import free_port
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .matrix.answers import answer, request_frame
from .matrix.principals import THIS_HOST
from .matrix.rules import ANYTHING, Kind, Operation, Permission, Rule
from .matrix.table import RECORD_ROWS
from .matrix.world import Admin
from .sasl_client import AuthenticationFailed, SaslClient
from .secrets import known_secret

pytestmark = [pytest.mark.security, pytest.mark.integration, pytest.mark.nightly]

_ADMIN: Final = "admin"
_SOON: Final = 10.0
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
_PRODUCE: Final = next(row for row in RECORD_ROWS if row.case == "to a topic")
_DENY: Final = Rule(Permission.DENY, Operation.WRITE, Kind.TOPIC, "orders")
_ALLOW: Final = Rule(Permission.ALLOW, Operation.WRITE, Kind.TOPIC, "orders")
_ALLOW_ALL: Final = Rule(Permission.ALLOW, Operation.ALL, Kind.TOPIC, ANYTHING)


class SecuredCluster(QbusCluster):
    """Three brokers whose clients, and who themselves, authenticate."""

    def __init__(self, directory: Path) -> None:
        self.password = known_secret("of-the-administrator")
        options = {
            "super.users": f"User:{_ADMIN}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.inter.broker.username": _ADMIN,
            "sasl.inter.broker.password": self.password,
            "zookeeper.session.timeout.ms": "4000",
            "default.replication.factor": "3",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        super().__init__(directory, *words)
        self.ports = {node: free_port() for node in NODES}
        for node, broker in self.brokers.items():
            listen = f"SASL_PLAINTEXT://{THIS_HOST}:{self.ports[node]}"
            broker.options = (*broker.options, "--listen", listen)

    @property
    def alive(self) -> list[int]:
        """The brokers that run."""
        return [node for node, broker in self.brokers.items() if broker.alive]

    def admin(self, node: int, do: "Callable[[Admin], object]") -> None:
        """Have the administrator do something at a broker."""
        with SaslClient(self.ports[node], _ADMIN, self.password) as client:
            do(Admin(client))


class Person:
    """A user of the cluster."""

    def __init__(self, cluster: SecuredCluster, name: str, *rules: Rule) -> None:
        self.cluster, self.name = cluster, name
        self.password = known_secret(f"of-{name}")
        cluster.admin(1, lambda admin: admin.set_passwords({name: self.password}))
        if rules:
            self.allow(1, *rules)

    def allow(self, node: int, *rules: Rule) -> None:
        """Create rules about it."""
        pairs = [(f"User:{self.name}", rule) for rule in rules]
        self.cluster.admin(node, lambda admin: admin.allow(pairs))

    def remove(self, node: int, *rules: Rule) -> None:
        """Remove rules about it."""
        pairs = [(f"User:{self.name}", rule) for rule in rules]
        self.cluster.admin(node, lambda admin: admin.remove(pairs))

    def writes(self, node: int) -> str:
        """What it is answered when it writes: "denied", "let in", "refused" or "no answer"."""
        try:
            with SaslClient(self.cluster.ports[node], self.name, self.password) as client:
                (data,) = client.ask_all([request_frame(_PRODUCE, {})])
        except AuthenticationFailed as failed:
            return "no answer" if failed.error is None else "refused"
        except OSError:
            return "no answer"
        if data is None:
            return "no answer"
        found = answer(_PRODUCE, data, {})
        return "denied" if any(one.endswith(_DENIED) for one in found) else "let in"

    def is_everywhere(self, wanted: str) -> bool:
        """Whether all live brokers answer so."""
        return all(self.writes(node) == wanted for node in self.cluster.alive)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    skip_because_of(zookeeper_process.missing())
    with SecuredCluster(tmp_path_factory.mktemp("faults")) as running:
        running.admin(1, lambda admin: admin.create_topics(["orders"]))
        yield running


@pytest.fixture
def all_there(cluster: SecuredCluster) -> Iterator[SecuredCluster]:
    """The cluster, whole before and after."""
    yield cluster
    for zookeeper in cluster.zookeepers:
        if not zookeeper.alive:
            zookeeper.start()
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()


def test_changes_reach_all_brokers(all_there: SecuredCluster) -> None:
    person = Person(all_there, "reached")
    wait_until(lambda: person.is_everywhere("denied"), "the user", _SOON)
    for node in NODES:
        person.allow(node, _ALLOW)
        wait_until(lambda: person.is_everywhere("let in"), "the right", _SOON)
        other = node % len(NODES) + 1
        person.remove(other, _ALLOW)
        wait_until(lambda: person.is_everywhere("denied"), "the refusal", _SOON)


def test_while_the_store_is_away_nobody_gains_anything(all_there: SecuredCluster) -> None:
    without, denied = Person(all_there, "without"), Person(all_there, "denied", _ALLOW_ALL, _DENY)
    allowed = Person(all_there, "allowed", _ALLOW)
    wait_until(lambda: allowed.is_everywhere("let in"), "the right", _SOON)
    wait_until(lambda: without.is_everywhere("denied"), "the user", _SOON)
    wait_until(lambda: denied.is_everywhere("denied"), "the rules", _SOON)
    all_there.zookeepers[0].kill()
    deadline = time.monotonic() + 12  # longer than sessions
    while time.monotonic() < deadline:
        for node in all_there.alive:
            assert without.writes(node) != "let in"
            assert denied.writes(node) != "let in"
            assert allowed.writes(node) == "let in"  # what was decided last holds
            with pytest.raises((AuthenticationFailed, OSError)):
                SaslClient(all_there.ports[node], "without", known_secret("wrong"))
    # Who changes rules meanwhile is told that it did not work, or not told that it did.
    with pytest.raises((AssertionError, AuthenticationFailed, OSError)):
        without.allow(1, _ALLOW)
    assert all(without.writes(node) != "let in" for node in all_there.alive)
    all_there.zookeepers[0].start()
    wait_until(lambda: _works(lambda: without.allow(1, _ALLOW)), "the store", 60.0)
    wait_until(lambda: without.is_everywhere("let in"), "the right", 60.0)
    without.remove(2, _ALLOW)
    wait_until(lambda: without.is_everywhere("denied"), "the refusal", _SOON)


def test_a_broker_that_was_away_learns_what_changed(all_there: SecuredCluster) -> None:
    """It must not let in for a moment who lost the right, or the password, while it was away."""
    person = Person(all_there, "loses", _ALLOW)
    removed = Person(all_there, "removed", _ALLOW)
    wait_until(lambda: person.is_everywhere("let in"), "the right", 30.0)
    wait_until(lambda: removed.is_everywhere("let in"), "the right", 30.0)
    all_there.brokers[3].kill()
    person.remove(1, _ALLOW)
    all_there.admin(2, lambda admin: admin.remove_users(["removed"]))
    all_there.brokers[3].start(wait=False)
    deadline = time.monotonic() + 30
    seen: set[str] = set()
    while time.monotonic() < deadline and not {"denied", "refused"} <= seen:
        seen |= {person.writes(3), removed.writes(3)}
        assert "let in" not in seen
    assert {"denied", "refused"} <= seen
    all_there.brokers[3].wait_ready()


def test_a_paused_broker_catches_up(all_there: SecuredCluster) -> None:
    person = Person(all_there, "paused", _ALLOW)
    wait_until(lambda: person.is_everywhere("let in"), "the right", 30.0)
    all_there.brokers[2].send_signal(signal.SIGSTOP)
    try:
        person.remove(1, _ALLOW)
        time.sleep(6)  # longer than its session
    finally:
        all_there.brokers[2].send_signal(signal.SIGCONT)
    wait_until(lambda: person.writes(2) == "denied", "what changed meanwhile", 20.0)


def test_rules_change_while_leaders_do(all_there: SecuredCluster) -> None:
    """What a broker acknowledged holds, whichever of them dies then."""
    person = Person(all_there, "failover")
    wait_until(lambda: person.is_everywhere("denied"), "the user", _SOON)
    for victim in NODES:
        changer = victim % len(NODES) + 1
        person.allow(changer, _ALLOW)
        all_there.brokers[victim].kill()
        wait_until(lambda: person.is_everywhere("let in"), "the right", 30.0)
        person.remove(changer, _ALLOW)
        wait_until(lambda: person.is_everywhere("denied"), "the refusal", _SOON)
        all_there.brokers[victim].start()
        wait_until(lambda: person.is_everywhere("denied"), "all brokers", 30.0)


def test_a_rule_that_cannot_be_read_opens_nothing(all_there: SecuredCluster) -> None:
    """Were a denying rule forgotten because its node is broken, its topic would be open."""
    person = Person(all_there, "broken", _ALLOW_ALL, _DENY)
    wait_until(lambda: person.is_everywhere("denied"), "the rules", _SOON)
    store = KazooClient(f"{all_there.zookeeper_address}/qbus")
    store.start()
    try:
        path = "/kafka-acl/Topic/orders"
        good, _ = store.get(path)
        assert json.loads(good)["acls"]
        try:
            store.set(path, b"{ broken")
            with suppress(Exception):  # so that all brokers look
                Person(all_there, "nobody-else").allow(1, _ALLOW_ALL)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                assert all(person.writes(node) != "let in" for node in all_there.alive)
            all_there.brokers[3].kill()
            all_there.brokers[3].start()
            assert person.writes(3) != "let in"
        finally:
            store.set(path, good)
    finally:
        store.stop()
        store.close()


def _works(do: Callable[[], object]) -> bool:
    try:
        do()
    except (AssertionError, AuthenticationFailed, OSError):
        return False
    return True
