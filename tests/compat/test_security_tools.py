"""Kafka's tools administer users, rules and quotas; redis-py and Spark's connector authenticate."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from perf.peers import java, kafka, spark_connector
from tests.security.matrix.rules import Kind
from tests.security.matrix.world import Admin
from tests.security.people import Someone
from tests.security.sasl_client import AuthenticationFailed, SaslClient
from tests.security.secrets import known_secret
from tests.security.secured import ADMIN, HOST, SecuredBroker
from tests.support import spark_session
from tests.support.ports import free_port
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .clients.security import Security

pytestmark = [pytest.mark.compat, pytest.mark.security]

_JOBS = free_port()
_TOOLS = "org.apache.kafka.tools"
_ACLS = "AclCommand"
_CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with every mechanism, and jobs over TLS."""
    settings = {"disque.listen": f"DISQUES://{HOST}:{_JOBS}"}
    with SecuredBroker(tmp_path_factory.mktemp("tools"), settings) as made:
        yield made


@pytest.fixture
def admin(broker: SecuredBroker) -> Iterator[Admin]:
    """One who may everything."""
    port = broker.ports["SASL_PLAINTEXT"]
    with SaslClient(port, ADMIN, broker.admin_password) as client:
        yield Admin(client)


@pytest.fixture
def someone(broker: SecuredBroker, admin: Admin) -> Someone:
    """A fresh user."""
    return Someone(broker, admin)


class Tools:
    """Kafka's tools as one user, who is told to them in a file of properties."""

    def __init__(self, bootstrap: str, security: Security, directory: Path) -> None:
        skip_because_of(kafka.missing())
        self._bootstrap = bootstrap
        self._file = directory / "client.properties"
        self._file.touch(mode=0o600)
        lines = (f"{key}={value}\n" for key, value in security.java().items())
        self._file.write_text("".join(lines))

    def run(self, main: str, *arguments: str, stdin: bytes = b"", fails: bool = False) -> str:
        """Run a tool to its end, and return what it prints."""
        result = java.run(
            main if main.startswith("kafka.") else f"{_TOOLS}.{main}",
            *("--bootstrap-server", self._bootstrap, "--command-config", str(self._file)),
            *arguments,
            stdin=stdin,
            timeout=60,
            options=java.SHORT_RUN_OPTIONS,
        )
        printed = result.stdout.decode() + result.stderr.decode()
        assert fails or result.returncode == 0, printed
        return printed


@pytest.fixture
def tools(broker: SecuredBroker, tmp_path: Path) -> Tools:
    """The tools as the administrator."""
    security = broker.administrator()
    return Tools(broker.bootstrap(security), security, tmp_path)


@pytest.mark.nightly
def test_kafka_acls(tools: Tools, someone: Someone) -> None:
    """``kafka-acls``: rules are added, listed as they were, and removed."""
    about = ("--topic", f"{someone.topic}-", "--resource-pattern-type", "prefixed")
    added = tools.run(
        _ACLS,
        *("--add", "--allow-principal", someone.principal, "--operation", "Read"),
        *("--allow-host", HOST, *about),
    )
    assert "Adding ACLs" in added
    listed = tools.run(_ACLS, "--list", *about)
    assert f"principal={someone.principal}, host={HOST}, operation=READ" in listed
    assert "patternType=PREFIXED" in listed
    tools.run(
        _ACLS,
        *("--remove", "--force", "--allow-principal", someone.principal, "--operation", "Read"),
        *("--allow-host", HOST, *about),
    )
    assert someone.principal not in tools.run(_ACLS, "--list", *about)


@pytest.mark.nightly
def test_kafka_acls_for_producers_and_consumers(tools: Tools, someone: Someone) -> None:
    """The short forms make all rules that a producer or a consumer needs."""
    tools.run(_ACLS, "--add", "--allow-principal", someone.principal, "--producer", "--topic", "x")
    tools.run(
        _ACLS,
        *("--add", "--allow-principal", someone.principal, "--consumer", "--topic", "x"),
        *("--group", "g"),
    )
    listed = tools.run(_ACLS, "--list", "--principal", someone.principal)
    for operation in ("WRITE", "CREATE", "DESCRIBE", "READ"):
        assert f"operation={operation}" in listed


@pytest.mark.nightly
def test_kafka_configs_makes_users(broker: SecuredBroker, tools: Tools) -> None:
    """``kafka-configs`` makes, shows and removes SCRAM credentials."""
    password = known_secret("of-a-user-made-by-kafka-configs")
    entity = ("--entity-type", "users", "--entity-name", "made-by-tools")
    credential = f"SCRAM-SHA-256=[iterations=8192,password={password}]"
    tools.run(_CONFIGS, "--alter", "--add-config", credential, *entity)
    described = tools.run(_CONFIGS, "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=8192" in described
    port = broker.ports["SASL_PLAINTEXT"]
    with SaslClient(port, "made-by-tools", password) as client:
        assert client.is_served()
    tools.run(_CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    with pytest.raises(AuthenticationFailed):
        SaslClient(port, "made-by-tools", password)


@pytest.mark.nightly
def test_kafka_configs_sets_quotas(tools: Tools, someone: Someone) -> None:
    entity = ("--entity-type", "users", "--entity-name", someone.name)
    limits = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=150"
    tools.run(_CONFIGS, "--alter", "--add-config", limits, *entity)
    described = tools.run(_CONFIGS, "--describe", *entity)
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=150.0" in described
    tools.run(_CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *entity)
    assert "producer_byte_rate" not in tools.run(_CONFIGS, "--describe", *entity)


@pytest.mark.nightly
def test_console_tools(broker: SecuredBroker, someone: Someone, tmp_path: Path) -> None:
    """The console producer and consumer with each mechanism that Java has."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        security = someone.security(mechanism)
        tools = Tools(broker.bootstrap(security), security, tmp_path)
        tools.run("ConsoleProducer", "--topic", someone.topic, stdin=f"{mechanism}\n".encode())
    consumed = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", someone.topic, "--from-beginning", "--max-messages", "3"),
        *("--group", someone.name),
    )
    assert consumed.split()[:3] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.nightly
def test_tools_say_what_one_may_not(
    broker: SecuredBroker, someone: Someone, tmp_path: Path
) -> None:
    security = someone.security("SCRAM-SHA-256")
    tools = Tools(broker.bootstrap(security), security, tmp_path)
    assert "Cluster authorization failed" in tools.run(_ACLS, "--list", fails=True)
    listed = tools.run("TopicCommand", "--list").split()
    assert [one for one in listed if one.startswith("topic-of-")] == [someone.topic]


def test_redis_py(broker: SecuredBroker, someone: Someone, admin: Admin) -> None:
    """Jobs over TLS as a user: a queue is the topic of its name, the group is that of jobs."""
    client = _redis(broker, username=someone.name, password=someone.password)
    try:
        assert client.ping()
        job = client.execute_command("ADDJOB", someone.topic, "body", 5000)
        assert client.execute_command("QLEN", someone.topic) == 1
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("GETJOB", "NOHANG", "FROM", someone.topic)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("QLEN", "vault")
        someone.allow(Kind.GROUP, "disque")
        found = wait_until(lambda: _job_of(client, someone.topic), "the right to take jobs")
        assert found == job
    finally:
        client.close()
    wrong = _redis(broker, username=someone.name, password=known_secret("wrong"))
    with pytest.raises(redis.exceptions.AuthenticationError):
        wrong.ping()
    wrong.close()
    others = _redis(broker, ssl_ca_certs=None)
    with pytest.raises((redis.exceptions.ConnectionError, ssl.SSLError)):
        others.ping()
    others.close()


def _redis(broker: SecuredBroker, **settings: Any) -> Any:
    """A client over TLS that does not try again."""
    trusted = {"ssl_ca_certs": str(broker.authority.ca), **settings}
    return redis.Redis(host=HOST, port=_JOBS, ssl=True, retry=Retry(NoBackoff(), 0), **trusted)


def _job_of(client: Any, queue: str) -> bytes | None:
    try:
        found = client.execute_command("GETJOB", "NOHANG", "FROM", queue)
    except redis.exceptions.NoPermissionError:
        return None
    return bytes(found[0][1]) if found else None


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", None])
def test_sparks_connector(
    mechanism: str | None, broker: SecuredBroker, someone: Someone, tmp_path: Path
) -> None:
    skip_because_of(spark_session.missing() or spark_connector.missing())
    security = broker.security(mechanism, someone.name, someone.password)
    options = {f"kafka.{key}": value for key, value in security.java().items()}
    options["kafka.bootstrap.servers"] = broker.bootstrap(security)
    with spark_session.spark_session(spark__jars=spark_connector.jars()) as spark:
        rows = spark.createDataFrame([("k", str(number)) for number in range(10)], ["key", "value"])
        rows.write.format("kafka").options(topic=someone.topic, **options).save()
        read = spark.read.format("kafka").options(subscribe=someone.topic, **options).load()
        values = [bytes(row.value).decode() for row in read.select("value").collect()]
    assert sorted(values) == [str(number) for number in range(10)]
