"""Our clients at Apache Kafka with TLS, SASL, access rules and sessions that end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.peers import kafka
from perf.peers.kafka import KafkaProcess
from qbus.clients import (
    Admin,
    AuthenticationFailed,
    ClientSecurity,
    ClusterAuthorizationFailed,
    Consumer,
    Entry,
    Filter,
    Operation,
    Pattern,
    Permission,
    Producer,
    ResourceType,
    Rule,
    ScramCredentialInfo,
    ScramUpsert,
    TlsFailed,
    TopicAuthorizationFailed,
)
from qbus.errors import ApiError
from tests.support.ports import free_port
from tests.support.secure_broker import certificates
from tests.support.secured_broker import user
from tests.support.tools import skip_because_of

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(240)]

MODULES = "org.apache.kafka.common.security"
REAUTH_S = 2.0
RULES = [
    Rule(Pattern(kind, name), Entry("User:alice", "*", operation, Permission.ALLOW))
    for kind, name, operation in (
        (ResourceType.TOPIC, "t", Operation.READ),
        (ResourceType.TOPIC, "t", Operation.WRITE),
        (ResourceType.GROUP, "*", Operation.READ),
    )
]


class SecuredKafka:
    """Whoever comes in clear may do everything, whoever shows a password what rules allow."""

    def __init__(self, directory: Path) -> None:
        made = certificates()
        self.port = free_port()
        keystore = directory / "server.pem"
        keystore.write_text(Path(made.server_key).read_text() + Path(made.server).read_text())
        ours = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_alice="secret";'
            ),
            "scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "connections.max.reauth.ms": f"{REAUTH_S * 1000:.0f}",
        }
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_SSL"
            ),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **{f"listener.name.proxied.{key}": value for key, value in ours.items()},
        }
        self.process = KafkaProcess(directory / "data", settings, proxied=(self.port, self.port))

    @property
    def sasl(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    skip_because_of(kafka.missing())
    found = SecuredKafka(tmp_path_factory.mktemp("kafka"))
    with found.process:
        yield found


async def test_users_rules_quotas_and_sessions(secured: SecuredKafka) -> None:
    alice = (("user", "alice"),)
    async with Admin(secured.process.bootstrap) as admin:
        await admin.create_topic("t", partitions=2)
        await admin.alter_user_scram_credentials(
            [
                ScramUpsert("alice", "secret", "SCRAM-SHA-256", 4096),
                ScramUpsert("alice", "secret", "SCRAM-SHA-512", 8192),
            ]
        )
        known = await admin.describe_user_scram_credentials(["alice"])
        assert set(known["alice"]) == {
            ScramCredentialInfo("SCRAM-SHA-256", 4096),
            ScramCredentialInfo("SCRAM-SHA-512", 8192),
        }
        await admin.create_acls(RULES)
        assert set(await admin.describe_acls()) == set(RULES)
        await admin.alter_client_quotas({alice: {"producer_byte_rate": 1e9}})
        assert await admin.describe_client_quotas() == {alice: {"producer_byte_rate": 1e9}}
        await asyncio.sleep(1)  # until the broker has taken it in
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            await outlive_sessions(secured.sasl, user("alice", "secret", mechanism))
        assert set(await admin.delete_acls([Filter(principal="User:alice")])) == set(RULES)


async def outlive_sessions(bootstrap: str, security: ClientSecurity) -> None:
    """Produce and consume over the same connections for longer than a session lasts."""
    loop = asyncio.get_running_loop()
    sent = found = 0
    async with (
        Producer(bootstrap, security=security, linger_ms=0) as producer,
        Consumer(bootstrap, group=security.sasl_mechanism, security=security) as consumer,
    ):
        consumer.subscribe(["t"])
        await consumer.poll(2.0)
        end = loop.time() + 2 * REAUTH_S
        while loop.time() < end:
            await (await producer.send("t", b"x"))
            sent += 1
            found += sum(len(part) for part in await consumer.poll(0.02))
        async with asyncio.timeout(20):
            while found < sent:
                found += sum(len(part) for part in await consumer.poll(0.5))
        connections = [
            *producer._cluster._pool._connections.values(),
            *consumer._cluster._pool._connections.values(),
        ]
        assert all(connection.is_open for connection in connections)


async def test_what_is_wrong_is_said(secured: SecuredKafka) -> None:
    wrong: list[tuple[ClientSecurity, type[ApiError], str]] = [
        (user("alice", "hunter2", "PLAIN"), AuthenticationFailed, "'alice' with PLAIN failed"),
        (
            ClientSecurity(protocol="SSL", ssl_ca_location=certificates().other_ca),
            TlsFailed,
            "certificate is not trusted",
        ),
        (
            ClientSecurity(protocol="SSL", ssl_ca_location=certificates().ca),
            ApiError,
            "if its listener wants SASL",
        ),
        (ClientSecurity(), ApiError, "security.protocol is SSL or SASL_SSL there"),
    ]
    for security, kind, message in wrong:
        async with Admin(secured.sasl, security=security, request_timeout_ms=1000) as admin:
            with pytest.raises(kind, match=message) as caught:
                await admin.list_topics()
            assert "hunter2" not in str(caught.value)


async def test_what_may_not_be_done_is_said(secured: SecuredKafka) -> None:
    async with Admin(secured.sasl, security=user("alice", "secret", "PLAIN")) as admin:
        with pytest.raises(TopicAuthorizationFailed):
            await admin.create_topic("other")
        with pytest.raises(ClusterAuthorizationFailed):
            await admin.describe_acls()
