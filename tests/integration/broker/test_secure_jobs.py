"""Jobs and metrics of three nodes over TLS, for users with rules: with clients of others."""

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qbus import Admin, ScramUpsert
from qbus.security.acls import Entry, Operation, Pattern, Permission, ResourceType, Rule
from tests.support.ports import free_port, free_ports
from tests.support.secure_broker import certificates
from tests.support.workers_process import WorkersProcess

pytestmark = pytest.mark.integration

HOST = "127.0.0.1"
BROKERS = ("brokers", "of-the-brokers")
ALICE = ("alice", "of-alice")
BOB = ("bob", "of-bob")


class Secured(NamedTuple):
    """Where three nodes are reached."""

    server: WorkersProcess
    jobs: range
    metrics: int

    def client(
        self, node: int = 0, user: tuple[str, str] | None = ALICE, ca: str | None = None
    ) -> redis.Redis:
        """A client of redis-py that trusts the authority."""
        name, password = user or (None, None)
        return redis.Redis(
            HOST,
            self.jobs[node],
            username=name,
            password=password,
            ssl=True,
            ssl_ca_certs=ca or certificates().ca,
            ssl_check_hostname=True,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
        )

    def scrape(self, user: tuple[str, str] | None) -> tuple[int, str]:
        """Status and text of the metrics of all."""
        request = urllib.request.Request(f"https://{HOST}:{self.metrics}/metrics")
        if user is not None:
            token = base64.b64encode(":".join(user).encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        context = ssl.create_default_context(cafile=certificates().ca)
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made, jobs, metrics = certificates(), free_ports(3), free_port()
    settings = {
        "disque.sasl.enable": "true",
        "authorizer.class.name": "acl",
        "super.users": "User:ANONYMOUS",  # on the listener that is for this test alone
        "sasl.inter.broker.username": BROKERS[0],
        "sasl.inter.broker.password": BROKERS[1],
        "ssl.certificate.location": made.server,
        "ssl.key.location": made.server_key,
        "ssl.truststore.location": made.ca,
        "metrics.authentication": "basic",
    }
    options = [word for item in settings.items() for word in ("-o", "=".join(item))]
    options += ["--disque-listen", f"DISQUES://{HOST}:{jobs[0]}"]
    options += ["--metrics-listen", f"https://{HOST}:{metrics}"]
    directory: Path = tmp_path_factory.mktemp("secured")
    with WorkersProcess(directory, 3, *options) as server:
        with Admin(server.bootstrap) as admin:
            upserts = [ScramUpsert(name, secret, "SCRAM-SHA-256") for name, secret in (ALICE, BOB)]
            admin.alter_user_scram_credentials(upserts)
            admin.create_acls(
                [
                    *allowed("alice", ResourceType.TOPIC, "mine", Operation.ALL),
                    *allowed("alice", ResourceType.GROUP, "disque", Operation.READ),
                    *allowed("bob", ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE),
                ]
            )
        yield Secured(server, jobs, metrics)


def allowed(user: str, kind: ResourceType, name: str, operation: Operation) -> list[Rule]:
    entry = Entry(f"User:{user}", "*", operation, Permission.ALLOW)
    return [Rule(Pattern(kind, name), entry)]


def test_a_job_from_one_node_to_another(secured: Secured) -> None:
    with secured.client(0) as one, secured.client(1) as two, secured.client(2) as three:
        job = one.execute_command("ADDJOB", "mine", "body", 5000)
        assert two.execute_command("GETJOB", "TIMEOUT", 20_000, "FROM", "mine") == [
            ["mine", job, "body"]
        ]
        assert "body" in three.execute_command("SHOW", job)
        assert three.execute_command("ACKJOB", job) == 1


def test_who_waits_at_another_node_gets_it(secured: Secured) -> None:
    with secured.client(1) as waiting, secured.client(0) as adding:
        pipeline = waiting.connection_pool.get_connection()
        pipeline.send_command("GETJOB", "TIMEOUT", 20_000, "FROM", "mine")
        job = adding.execute_command("ADDJOB", "mine", "waited for", 5000)
        assert pipeline.read_response() == [["mine", job, "waited for"]]
        assert adding.execute_command("ACKJOB", job) == 1
        waiting.connection_pool.release(pipeline)


def test_hello_names_addresses_with_tls(secured: Secured) -> None:
    with secured.client(0) as client:
        hello = client.execute_command("HELLO")
        assert sorted(int(node[2]) for node in hello[2:]) == list(secured.jobs)


def test_rules_hold_at_every_node(secured: Secured) -> None:
    for node in range(3):
        with secured.client(node, BOB) as bob, secured.client(node) as alice:
            with pytest.raises(redis.exceptions.NoPermissionError):
                bob.execute_command("QLEN", "mine")
            with pytest.raises(redis.exceptions.NoPermissionError):
                alice.execute_command("ADDJOB", "other", "body", 1000)
            with pytest.raises(redis.exceptions.NoPermissionError):
                alice.execute_command("QBUS.LOCAL", "QLEN", "mine")
            assert bob.execute_command("QSCAN")[1] == []
            assert bob.info()["qbus_version"]


@pytest.mark.parametrize("user", [("alice", "wrong"), ("nobody", "of-alice"), BROKERS[:1] + ("",)])
def test_a_wrong_password_is_refused(secured: Secured, user: tuple[str, str]) -> None:
    with (
        secured.client(user=user) as client,
        pytest.raises((redis.exceptions.AuthenticationError, redis.exceptions.ResponseError)),
    ):
        client.ping()


def test_without_a_user_nothing_is_answered(secured: Secured) -> None:
    with secured.client(user=None) as client, pytest.raises(redis.exceptions.RedisError) as refused:
        client.execute_command("QLEN", "mine")
    assert "mine" not in str(refused.value)


def test_clients_check_who_the_broker_is(secured: Secured) -> None:
    with (
        secured.client(ca=certificates().other_ca) as client,
        pytest.raises(redis.exceptions.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.ping()


def test_metrics_of_all_are_for_some(secured: Secured) -> None:
    assert secured.scrape(None)[0] == 401
    assert secured.scrape(("bob", "wrong"))[0] == 401
    assert secured.scrape(ALICE)[0] == 403
    status, text = secured.scrape(BOB)
    assert status == 200
    assert [f'qbus_worker_up{{broker="{node}"}} 1.0' in text for node in (1, 2, 3)] == [True] * 3
    assert "qbus_jobs_clients" in text


def test_no_secret_is_logged(secured: Secured) -> None:
    log = secured.server.log_text()
    for _, secret in (BROKERS, ALICE, BOB):
        assert secret not in log


def test_a_removed_user_is_disconnected(secured: Secured) -> None:
    carol = ("carol", "of-carol")
    with Admin(secured.server.bootstrap) as admin:
        admin.alter_user_scram_credentials([ScramUpsert(*carol, "SCRAM-SHA-256")])
        client = secured.client(2, carol)
        connection = client.connection_pool.get_connection()
        connection.send_command("PING")
        assert connection.read_response() == "PONG"
        admin.alter_user_scram_credentials((), [(carol[0], "SCRAM-SHA-256")])
        with pytest.raises(redis.exceptions.ConnectionError):
            connection.read_response(timeout=20)
        client.close()
