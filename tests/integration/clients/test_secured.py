"""Our clients at a broker that knows its users, each by what it shows."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qbus.clients import (
    Admin,
    AuthenticationFailed,
    AuthorizationFailed,
    ClientSecurity,
    ClusterAuthorizationFailed,
    ConnectionFailed,
    Consumer,
    Entry,
    Filter,
    GroupAuthorizationFailed,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Producer,
    Queue,
    RequestTimedOut,
    ResourceType,
    Rule,
    ScramUpsert,
    ShareConsumer,
    TlsFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    TransactionFailed,
)
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.running import RunningLink
from qbus.errors import ApiError
from qbus.security.table import SecurityTable
from tests.security.authority import AUDIENCE, ISSUER, Issuer
from tests.support.secure_broker import certificates
from tests.support.secured_broker import (
    ROOT,
    ROOT_PASSWORD,
    SecuredBroker,
    root,
    user,
    with_certificate,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PASSWORD = "correct horse"
REAUTH_MS = 1500
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    options = (
        f"connections.max.reauth.ms={REAUTH_MS}",
        "group.initial.rebalance.delay.ms=0",
        "connection.failed.authentication.delay.ms=20",
    )
    with SecuredBroker(tmp_path_factory.mktemp("secured"), *options) as broker:
        yield broker


@pytest.fixture
async def admin(broker: SecuredBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.sasl, security=root()) as admin:
        yield admin


@asynccontextmanager
async def known(admin: Admin, name: str, password: str = PASSWORD) -> AsyncIterator[None]:
    """A user with a password for both mechanisms, known to the broker."""
    upserts = [
        ScramUpsert(name, password, mechanism, 4096)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    for upsert in upserts:
        await admin.alter_user_scram_credentials([upsert])
    yield
    for upsert in upserts:
        await admin.alter_user_scram_credentials(deletions=[(name, upsert.mechanism)])


def allow(principal: str, operation: Operation, kind: ResourceType, name: str) -> Rule:
    pattern = Pattern(kind, name, PatternType.LITERAL)
    return Rule(pattern, Entry(principal, "*", operation, Permission.ALLOW))


def everything(principal: str, topic: str) -> list[Rule]:
    return [
        allow(principal, Operation.READ, ResourceType.TOPIC, topic),
        allow(principal, Operation.WRITE, ResourceType.TOPIC, topic),
        allow(principal, Operation.READ, ResourceType.GROUP, "*"),
        allow(principal, Operation.ALL, ResourceType.TRANSACTIONAL_ID, "*"),
    ]


@pytest.fixture
async def topic(admin: Admin) -> AsyncIterator[str]:
    name = f"secured-{next(_numbers)}"
    await admin.create_topic(name, partitions=2)
    yield name
    await admin.delete_acls([Filter(name=name)])
    await admin.delete_topic(name)


async def round_trip(bootstrap: str, security: ClientSecurity, topic: str, count: int = 20) -> None:
    async with Producer(bootstrap, security=security) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)
    found = 0
    group = f"g-{next(_numbers)}"
    async with Consumer(
        bootstrap, group=group, offset_reset="earliest", security=security
    ) as consumer:
        consumer.subscribe([topic])
        async with asyncio.timeout(20):
            while found < count:
                found += sum(len(part) for part in await consumer.poll(1.0))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_with_a_password(
    broker: SecuredBroker, admin: Admin, topic: str, mechanism: str
) -> None:
    async with known(admin, "alice"):
        await admin.create_acls(everything("User:alice", topic))
        await eventually_allowed(broker.sasl, user("alice", PASSWORD, mechanism), topic)
        await round_trip(broker.sasl, user("alice", PASSWORD, mechanism), topic)


async def eventually_allowed(bootstrap: str, security: ClientSecurity, topic: str) -> None:
    """Return once the broker's rules and users are those in the store."""

    async def is_allowed() -> bool:
        try:
            async with Producer(bootstrap, security=security) as producer:
                await producer.partitions(topic)
        except (AuthenticationFailed, AuthorizationFailed):
            return False
        return True

    await eventually(is_allowed, 10)


async def test_a_client_with_a_certificate(broker: SecuredBroker, admin: Admin, topic: str) -> None:
    security = with_certificate()
    await admin.create_acls(everything("User:CN=client", topic))
    await eventually_allowed(broker.mutual, security, topic)
    await round_trip(broker.mutual, security, topic)
    async with Admin(
        broker.mutual,
        security_protocol="SSL",
        ssl_cafile=certificates().ca,
        request_timeout_ms=1000,
    ) as nobody:
        with pytest.raises(ApiError, match=r"ssl\.certificate\.location"):
            await nobody.list_topics()


async def test_what_may_not_be_done_is_said_at_once(
    broker: SecuredBroker, admin: Admin, topic: str
) -> None:
    async with known(admin, "bob"):
        security = user("bob", PASSWORD)
        await eventually_known(broker.sasl, security)
        async with asyncio.timeout(15):
            async with Producer(broker.sasl, security=security) as producer:
                with pytest.raises(TopicAuthorizationFailed):
                    await (await producer.send(topic, b"x"))
            async with Admin(broker.sasl, security=security) as bobs:
                with pytest.raises(AuthorizationFailed):
                    await bobs.create_topic("bobs-own")
                with pytest.raises(ClusterAuthorizationFailed):
                    await bobs.describe_acls()
                with pytest.raises(TopicAuthorizationFailed):
                    await bobs.delete_topic(topic)
            await admin.create_acls(everything("User:bob", topic)[:2])
            await eventually_allowed(broker.sasl, security, topic)
            async with Consumer(broker.sasl, group="g", security=security) as consumer:
                consumer.subscribe([topic])
                with pytest.raises(GroupAuthorizationFailed):
                    await consumer.poll(10.0)
            async with ShareConsumer(broker.sasl, "g", [topic], security=security) as sharing:
                with pytest.raises(GroupAuthorizationFailed):
                    await sharing.poll(10.0)
            async with Producer(broker.sasl, transactional_id="tx", security=security) as producer:
                with pytest.raises((TransactionalIdAuthorizationFailed, TransactionFailed)):
                    async with producer.transaction():
                        await producer.send(topic, b"x")


async def eventually_known(bootstrap: str, security: ClientSecurity) -> None:
    async def is_known() -> bool:
        try:
            async with Admin(bootstrap, security=security) as admin:
                await admin.describe_cluster()
        except AuthenticationFailed:
            return False
        return True

    await eventually(is_known, 10)


async def test_what_is_wrong_is_said(broker: SecuredBroker) -> None:
    wrong = {
        AuthenticationFailed: user(ROOT, "hunter2"),
        TlsFailed: ClientSecurity(protocol="SSL", ssl_ca_location=certificates().other_ca),
    }
    for kind, security in wrong.items():
        async with Admin(broker.sasl, security=security) as admin:
            with pytest.raises(kind) as caught:
                await admin.list_topics()
            assert "hunter2" not in str(caught.value)
    for bootstrap, security, message in (
        (broker.sasl, ClientSecurity(), "security.protocol is SSL or SASL_SSL there"),
        (
            broker.bootstrap,
            user(ROOT, ROOT_PASSWORD),
            "does not speak TLS",
        ),
        (
            broker.sasl,
            ClientSecurity(protocol="SSL", ssl_ca_location=certificates().ca),
            "if its listener wants SASL",
        ),
        (
            broker.bootstrap,
            ClientSecurity.of(
                protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username="a",
                sasl_password="b",
            ),
            "the broker's listener does not use SASL",
        ),
    ):
        async with Admin(bootstrap, security=security, request_timeout_ms=700) as admin:
            with pytest.raises(ApiError, match=message):
                await admin.list_topics()


async def test_sessions_are_renewed_without_an_error(
    broker: SecuredBroker, admin: Admin, topic: str
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + 2 * REAUTH_MS / 1000
    found = sent = 0
    async with (
        Producer(broker.sasl, security=root(), linger_ms=0) as producer,
        Consumer(
            broker.sasl, group="renewed", offset_reset="earliest", security=root()
        ) as consumer,
    ):
        consumer.subscribe([topic])
        while loop.time() < end:
            await (await producer.send(topic, b"%d" % sent))
            sent += 1
            found += sum(len(part) for part in await consumer.poll(0.05))
        while found < sent:
            found += sum(len(part) for part in await consumer.poll(1.0))
        connections = [
            *producer._cluster._pool._connections.values(),
            *consumer._cluster._pool._connections.values(),
        ]
        assert all(connection.is_open for connection in connections)


async def test_a_password_is_changed_under_a_running_producer(
    broker: SecuredBroker, admin: Admin, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    async with known(admin, "carol"):
        await admin.create_acls(everything("User:carol", topic))
        security = user("carol", f"file:{file}")
        await eventually_allowed(broker.sasl, security, topic)
        async with Producer(broker.sasl, security=security) as producer:
            await (await producer.send(topic, b"1"))
            await admin.alter_user_scram_credentials(
                [ScramUpsert("carol", "another", "SCRAM-SHA-256", 4096)]
            )

            async def is_refused() -> bool:
                try:
                    await (await producer.send(topic, b"2"))
                except AuthenticationFailed:
                    return True
                return False

            await eventually(is_refused, 10)
            file.write_text("another")

            async def is_taken() -> bool:
                return not await is_refused()

            await eventually(is_taken, 10)


async def test_tokens_that_expire_are_replaced_in_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    issuer = Issuer(tmp_path_factory.mktemp("issuer"))
    options = (
        f"sasl.oauthbearer.jwks.endpoint.url=file://{issuer.keys}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        "sasl.oauthbearer.clock.skew.seconds=0",
        "super.users=User:dora",
    )
    issued: list[str] = []

    def issue() -> str:
        issued.append(issuer.token("dora", seconds=2))
        return issued[-1]

    security = ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location=certificates().ca,
        sasl_mechanism="OAUTHBEARER",
        oauth_token=issue,
    )
    directory = tmp_path_factory.mktemp("tokens")
    with SecuredBroker(directory, *options, mechanisms="SCRAM-SHA-256,OAUTHBEARER") as broker:
        loop = asyncio.get_running_loop()
        async with (
            Producer(broker.sasl, security=security, linger_ms=0) as producer,
            Admin(broker.sasl, security=security) as admin,
        ):
            await admin.create_topic("t")
            end = loop.time() + 3.5
            while loop.time() < end:
                await (await producer.send("t", b"x"))
                await asyncio.sleep(0.01)
            connections = list(producer._cluster._pool._connections.values())
            assert all(connection.is_open for connection in connections)
        assert len(set(issued)) >= 3
        log = broker.log_text()
    assert "failed to authenticate" not in log
    assert not any(token in log for token in issued)


async def test_jobs_in_a_queue(broker: SecuredBroker, admin: Admin) -> None:
    async with Queue(broker.sasl, "secured-jobs", security=root()) as queue:
        await queue.add(b"job")
        job = await queue.get(10)
        assert job is not None
        await queue.ack(job)


async def test_a_mirror_shows_each_side_who_it_is(
    broker: SecuredBroker,
    admin: Admin,
    topic: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    there = (
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", certificates().ca),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", ROOT),
        ("sasl.password", ROOT_PASSWORD),
    )
    with SecuredBroker(tmp_path_factory.mktemp("target")) as target:
        async with Producer(broker.sasl, security=root()) as producer:
            for number in range(50):
                await producer.send(topic, b"%d" % number)
        link = RunningLink(
            LinkConfig(
                "a",
                "b",
                broker.sasl,
                target.sasl,
                (topic,),
                source_security=SecurityTable(there),
                target_security=SecurityTable(there),
            )
        )
        link.start()
        try:
            async with Consumer(target.sasl, offset_reset="earliest", security=root()) as consumer:
                consumer.subscribe([f"a.{topic}"])
                found = 0
                async with asyncio.timeout(30):
                    while found < 50:
                        found += sum(len(part) for part in await consumer.poll(1.0))
        finally:
            await link.stop()
        assert ROOT_PASSWORD not in f"{link.config!r} {link.status()!r}"


async def test_time_runs_out_with_a_reason(broker: SecuredBroker) -> None:
    with pytest.raises((RequestTimedOut, ConnectionFailed), match="wants SASL"):
        async with Admin(
            broker.sasl,
            security_protocol="SSL",
            ssl_cafile=certificates().ca,
            request_timeout_ms=500,
        ) as admin:
            await admin.list_topics()
