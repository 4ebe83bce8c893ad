"""`qbus cluster up --secure` from end to end: commands, others' clients, and a restart."""

import json
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from qbus.security.client import read_properties
from tests.support import zookeeper_process
from tests.support.local_cluster import Up
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .conftest import Done, Qbus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PASSWORD = "correct horse battery staple"
SOON_S = 5.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    skip_because_of(zookeeper_process.missing())
    options = ("group.initial.rebalance.delay.ms=0",)
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    with Up(directory, *options, nodes=1, secure=True) as up:
        yield up


@pytest.fixture
def admin(up: Up) -> Qbus:
    return command_of(up.client_properties)


def command_of(file: Path) -> Qbus:
    """The command, as whoever connects with a file of properties."""
    qbus = Qbus("")
    del qbus.environment["QBUS_BOOTSTRAP"]
    qbus.environment["QBUS_COMMAND_CONFIG"] = str(file)
    return qbus


@pytest.fixture
def alice(admin: Qbus, tmp_path: Path) -> Iterator[Path]:
    """A user without rights, and what she connects with."""
    file = tmp_path / "alice.properties"
    admin("user", "add", "alice", "--password", PASSWORD, "--save", str(file))
    yield file
    admin("acl", "remove", "--principal", "User:alice")
    admin.run("user", "remove", "alice")


def eventually(qbus: Qbus, *arguments: str, code: int = 0, stdin: bytes = b"") -> Done:
    """Run a command until it ends with ``code``: rules count on all brokers within a second."""
    deadline = time.monotonic() + SOON_S
    while True:
        done = qbus.run(*arguments, stdin=stdin)
        if done.code == code or time.monotonic() > deadline:
            assert done.code == code, done.stderr.decode()
            return done
        time.sleep(0.1)


def test_what_the_administrator_is_given(up: Up) -> None:
    properties = read_properties(up.client_properties)
    assert properties == {
        "bootstrap.servers": up.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": properties["sasl.password"],
        "ssl.ca.location": str(up.directory / "ca.pem"),
    }
    assert len(properties["sasl.password"]) >= 24
    assert stat.S_IMODE(up.client_properties.stat().st_mode) == 0o600
    assert stat.S_IMODE((up.directory / "secrets").stat().st_mode) == 0o700
    assert f"--command-config {up.client_properties}" in up.log.read_text()


def test_the_administrator_administers(admin: Qbus, up: Up) -> None:
    assert admin.json("topic", "create", "t", "--partitions", "2")["created"] is True
    assert admin.json("cluster", "status")["brokers"][0]["up"] is True
    status = admin.json("cluster", "status", "--data-dir", str(up.directory))
    assert status["cluster_id"], "by the file in the directory"
    admin("produce", "t", stdin=b"one\ntwo\n")
    assert sorted(admin("consume", "t", "--exit-at-end").splitlines()) == [b"one", b"two"]
    admin("consume", "t", "--group", "g", "--exit-at-end")
    assert admin.json("group", "describe", "g")[0]["group"] == "g"
    admin("topic", "delete", "t")


def test_a_user_may_do_what_rules_allow_and_nothing_else(admin: Qbus, alice: Path) -> None:
    user = command_of(alice)
    admin("topic", "create", "orders")
    admin("topic", "create", "other")
    assert user.json("topic", "list") == [], "what one may not describe is not told of"
    assert "(TOPIC_AUTHORIZATION_FAILED)" in user.failure("topic", "describe", "orders")
    assert b"AUTHORIZATION_FAILED" in user.run("produce", "orders", stdin=b"x\n").stderr

    principal = ("--principal", "User:alice")
    admin("acl", "add", *principal, "--producer", "--topic", "orders")
    eventually(user, "produce", "orders", stdin=b"hello\n")
    assert [topic["name"] for topic in user.json("topic", "list")] == ["orders"]
    refused = user.run("consume", "orders", "--group", "g", "--exit-at-end")
    assert refused.code == 1
    assert b"AUTHORIZATION_FAILED" in refused.stderr

    admin("acl", "add", *principal, "--consumer", "--topic", "orders", "--group", "g")
    done = eventually(user, "consume", "orders", "--group", "g", "--exit-at-end")
    assert done.stdout == b"hello\n"
    checked = admin.run("acl", "check", *principal, "--operation", "write", "--topic", "orders")
    assert checked.code == 0
    assert b"allows User:alice WRITE" in checked.stdout

    write = (*principal, "--operation", "write", "--topic", "orders")
    admin("acl", "remove", *write)
    eventually(user, "produce", "orders", code=1, stdin=b"x\n")
    assert admin.run("acl", "check", *write).code == 3
    admin("topic", "delete", "orders", "other")


def test_passwords_change_and_users_go(admin: Qbus, alice: Path) -> None:
    user = command_of(alice)
    user("topic", "list")
    admin("user", "add", "alice", "--password", "another one")
    done = eventually(user, "topic", "list", code=1)
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert b"alice" in done.stderr or b"uthentication" in done.stderr
    alice.write_text(alice.read_text().replace(PASSWORD, "another one"))
    eventually(user, "topic", "list")
    admin("user", "remove", "alice")
    assert eventually(user, "topic", "list", code=1).stderr


def test_what_goes_wrong_is_said_in_a_line_and_soon(up: Up, tmp_path: Path) -> None:
    right = read_properties(up.client_properties)

    def failure(expected: str, **changes: str | None) -> None:
        properties = right | {key.replace("_", "."): value for key, value in changes.items()}
        file = tmp_path / "p"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value))
        began = time.monotonic()
        said = command_of(file).failure("topic", "list")
        assert expected in said, said
        assert "\n" not in said
        assert right["sasl.password"] not in said
        assert time.monotonic() - began < SOON_S, said

    failure("uthentication", sasl_password="wrong")
    failure("uthentication", sasl_username="nobody")
    failure("/none", ssl_ca_location="/none")
    failure("certificate", ssl_ca_location=None)
    failure("did you mean sasl.username", sasl_usrname="a")


def test_who_forgets_the_file_learns_that_one_is_needed(up: Up) -> None:
    with Qbus(up.bootstrap).start("topic", "list", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        process.terminate()
    assert "if its listener speaks TLS, security.protocol is SSL or SASL_SSL there" in said


def test_limits_are_kept_by_the_cluster(admin: Qbus) -> None:
    admin("quota", "set", "--user", "alice", "producer_byte_rate=1000000")
    (shown,) = admin.json("quota", "show")
    assert shown == {"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1_000_000.0}}
    admin("quota", "remove", "--user", "alice")
    assert admin.json("quota", "show") == []


def confluent(file: Path, **more: Any) -> dict[str, Any]:
    """The file as it is, in a client of librdkafka."""
    return {**read_properties(file), **more}


def test_librdkafka_reads_the_file_as_it_is(admin: Qbus, up: Up, alice: Path) -> None:
    admin("topic", "create", "rd")
    admin("acl", "add", "--principal", "User:alice", "--producer", "--topic", "rd")
    eventually(command_of(alice), "produce", "rd", stdin=b"first\n")
    delivered: list[Any] = []
    producer = Producer(confluent(alice))
    producer.produce("rd", b"second", callback=lambda error, _: delivered.append(error))
    assert producer.flush(10) == 0
    assert delivered == [None]
    consumer = Consumer(
        confluent(up.client_properties, **{"group.id": "rd", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["rd"])
    values = [message.value() for message in consumer.consume(2, 20) if not message.error()]
    assert values == [b"first", b"second"]
    consumer.close()
    client = AdminClient(confluent(alice))
    deletion = client.delete_topics(["rd"])["rd"]
    with pytest.raises(KafkaException) as failed:
        deletion.result(10)
    assert failed.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    admin("topic", "delete", "rd")


def test_kcat_reads_the_file_as_it_is(admin: Qbus, up: Up) -> None:
    kcat = shutil.which("kcat")
    skip_because_of(None if kcat else "kcat is not installed")
    assert kcat is not None
    admin("topic", "create", "cat")
    # librdkafka before 2.6.1 sends SCRAM's nonce wrongly, and is refused by Apache Kafka as well.
    file = ["-F", str(up.client_properties), "-X", "sasl.mechanism=PLAIN"]
    subprocess.run([kcat, *file, "-P", "-t", "cat"], input=b"meow\n", check=True, timeout=30)
    read = subprocess.run(
        [kcat, *file, "-C", "-t", "cat", "-e", "-q"], check=True, capture_output=True, timeout=30
    )
    assert read.stdout == b"meow\n"
    admin("topic", "delete", "cat")


def audited(up: Up) -> list[dict[str, Any]]:
    lines = (up.directory / "broker-1.audit.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_audit_log_tells_of_refusals(admin: Qbus, alice: Path, up: Up) -> None:
    admin("topic", "create", "secret-plans")
    command_of(alice).run("topic", "delete", "secret-plans")

    def is_told() -> bool:
        return any(
            line.get("principal") == "User:alice" and "secret-plans" in json.dumps(line)
            for line in audited(up)
        )

    wait_until(is_told, "the refusal in the audit log", SOON_S)
    assert stat.S_IMODE((up.directory / "broker-1.audit.log").stat().st_mode) & 0o077 == 0
    admin("topic", "delete", "secret-plans")


def test_no_secret_is_in_a_log(up: Up, alice: Path) -> None:
    secrets = {path.read_text() for path in (up.directory / "secrets").glob("*.password")}
    secrets |= {read_properties(up.client_properties)["sasl.password"], PASSWORD}
    logs = [*up.directory.glob("*.log"), up.log]
    assert len(logs) >= 4
    for log in logs:
        text = log.read_text(errors="replace")
        assert not any(secret in text for secret in secrets), log
        assert "PRIVATE KEY" not in text


def test_no_secret_is_told_by_settings(admin: Qbus) -> None:
    shown = admin.json("broker-config", "--broker", "1", "--all")
    values = {entry["name"]: entry["value"] for entry in shown}
    assert values["sasl.inter.broker.password"] is None
    assert values["zookeeper.digest"] is None


def test_a_restart_keeps_users_rules_and_secrets(tmp_path: Path) -> None:
    skip_because_of(zookeeper_process.missing())
    directory, file = tmp_path / "cluster", tmp_path / "alice.properties"
    with Up(directory, nodes=1, secure=True) as first:
        admin = command_of(first.client_properties)
        admin("user", "add", "alice", "--password", PASSWORD, "--save", str(file))
        admin("acl", "add", "--principal", "User:alice", "--producer", "--topic", "kept")
        before = first.client_properties.read_bytes()
        base_port = first.base_port
        first.stop()
    with Up(directory, nodes=1, secure=False, base_port=base_port) as second:
        assert second.client_properties.read_bytes() == before
        admin = command_of(second.client_properties)
        assert [user["user"] for user in admin.json("user", "list")] == ["admin", "alice"]
        command_of(file)("produce", "kept", stdin=b"still\n")
