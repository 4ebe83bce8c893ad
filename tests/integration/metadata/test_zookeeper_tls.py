"""ZooKeeper that speaks TLS alone: sessions, certificates, who may read what."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.exceptions import NoAuthError

from qbus.metadata import AccessDenied, Create, Set, StoreUnavailable, StoreUnusable
from qbus.metadata.znodes import CLUSTER_SECRET, USER_CONFIGS, BrokerNode, EndpointNode
from qbus.metadata.zookeeper import ZooKeeperAddress, find_brokers
from qbus.metadata.zookeeper.security import ENVIRONMENT, ZooKeeperSecurity
from qbus.metadata.zookeeper.store import ZooKeeperStore
from tests.support import zookeeper_process
from tests.support.secure_broker import Certificates, certificates
from tests.support.tools import skip_because_of
from tests.support.zookeeper_process import ZooKeeperProcess

from .sessions import kazoo_client

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def made() -> Certificates:
    return certificates()


@pytest.fixture(scope="module")
def encrypted(made: Certificates) -> Iterator[ZooKeeperProcess]:
    skip_because_of(zookeeper_process.missing())
    with ZooKeeperProcess(tls=made) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    return f"/{uuid4()}"


def security(made: Certificates, **changed: object) -> ZooKeeperSecurity:
    stated = {"uses_tls": True, "truststore": made.ca, "keystore": client_pem(made), **changed}
    return ZooKeeperSecurity(**stated)  # type: ignore[arg-type]


def client_pem(made: Certificates, name: str = "client") -> str:
    """Certificate and key in one file."""
    path = Path(made.client).with_name(f"{name}-and-key.pem")
    key, certificate = getattr(made, f"{name}_key"), getattr(made, name)
    path.write_bytes(Path(key).read_bytes() + Path(certificate).read_bytes())
    return str(path)


def store_at(
    server: ZooKeeperProcess, chroot: str, how: ZooKeeperSecurity, **options: object
) -> ZooKeeperStore:
    address = ZooKeeperAddress.parse(f"127.0.0.1:{server.secure_port}{chroot}")
    return ZooKeeperStore(address, security=how, **options)  # type: ignore[arg-type]


async def test_a_session_over_tls(
    encrypted: ZooKeeperProcess, chroot: str, made: Certificates
) -> None:
    changed = asyncio.Event()
    async with store_at(encrypted, chroot, security(made)) as store:
        await store.transaction([Create("/a/b", b"x" * 100_000)])
        node = await store.get("/a/b", changed.set)
        assert node is not None
        assert len(node.data) == 100_000
        await asyncio.gather(*(store.transaction([Create(f"/n/{i}")]) for i in range(200)))
        assert len(await store.children("/n")) == 200
        await store.transaction([Set("/a/b", b"y")])
        await asyncio.wait_for(changed.wait(), 5)
        assert len(await store.tree("/")) == 204


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"truststore": certificates().other_ca}, "CERTIFICATE_VERIFY_FAILED|certificate verify"),
        ({"uses_tls": False}, "no ZooKeeper answers"),
        ({"keystore": None}, "no ZooKeeper answers"),
        ({"truststore": "/none"}, "/none"),
    ],
)
async def test_a_session_that_is_refused_says_why(
    encrypted: ZooKeeperProcess,
    chroot: str,
    made: Certificates,
    changed: dict[str, object],
    why: str,
) -> None:
    store = store_at(encrypted, chroot, security(made, **changed), connection_timeout_s=1.0)
    with pytest.raises(StoreUnusable, match=why):
        await store.start()


async def test_a_server_must_have_the_name_that_is_asked(
    encrypted: ZooKeeperProcess, chroot: str, made: Certificates
) -> None:
    address = ZooKeeperAddress.parse(f"127.0.0.2:{encrypted.secure_port}{chroot}")
    store = ZooKeeperStore(address, security=security(made), connection_timeout_s=1.0)
    with pytest.raises(StoreUnusable, match=r"127\.0\.0\.2|IP address mismatch"):
        await store.start()
    lax = security(made, check_hostname=False)
    async with ZooKeeperStore(address, security=lax) as unchecked:
        await unchecked.transaction([Create("/a")])


async def test_secrets_are_read_by_brokers_alone(
    encrypted: ZooKeeperProcess, chroot: str, made: Certificates
) -> None:
    ours = security(made, digest="bus:secret")
    # A certificate is somebody, too: whoever has the broker's may read what it has created.
    other = security(made, keystore=client_pem(made, "server"))
    async with (
        store_at(encrypted, chroot, ours, protect=True) as broker,
        store_at(encrypted, chroot, other) as nobody,
    ):
        await broker.transaction(
            [
                Create(f"{USER_CONFIGS}/alice", b"salted"),
                Create(CLUSTER_SECRET, b"random"),
                Create("/config/topics/t", b"public"),
                Create("/kafka-acl/Topic/t", b"rules"),
            ]
        )
        for path in (f"{USER_CONFIGS}/alice", CLUSTER_SECRET):
            assert await broker.get(path) is not None
            with pytest.raises(AccessDenied):
                await nobody.get(path)
        with pytest.raises(AccessDenied):
            await nobody.children(USER_CONFIGS)
        for path in ("/config/topics/t", "/kafka-acl/Topic/t"):
            assert await nobody.get(path) is not None
            with pytest.raises(AccessDenied):
                await nobody.transaction([Set(path, b"forged")])


async def test_secrets_from_before_are_hidden_at_the_next_start(
    encrypted: ZooKeeperProcess, chroot: str
) -> None:
    address = ZooKeeperAddress.parse(encrypted.bootstrap + chroot)
    async with ZooKeeperStore(address) as open_to_all:
        await open_to_all.transaction([Create(f"{USER_CONFIGS}/alice", b"salted")])
    with kazoo_client(encrypted.bootstrap) as client:
        assert client.get(f"{chroot}{USER_CONFIGS}/alice")[0] == b"salted"
        async with ZooKeeperStore(address, credentials="bus:secret", protect=True) as broker:
            for path in (USER_CONFIGS, f"{USER_CONFIGS}/alice"):
                with pytest.raises(NoAuthError):
                    client.get(chroot + path)
            node = await broker.get(f"{USER_CONFIGS}/alice")
            assert node is not None
            await broker.transaction([Set(f"{USER_CONFIGS}/alice", b"changed")])


async def test_clients_find_brokers_over_tls(
    encrypted: ZooKeeperProcess,
    chroot: str,
    made: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with store_at(encrypted, chroot, security(made)) as store:
        listeners = (
            EndpointNode("INTERNAL", "PLAINTEXT", "inside", 9092),
            EndpointNode("CLIENTS", "SASL_SSL", "outside", 9093),
        )
        node = BrokerNode("inside", 9092, 0, listeners=BrokerNode.listed(listeners))
        await store.transaction([Create(node.path(1), node.encode(), ephemeral=True)])
        address = f"zk://127.0.0.1:{encrypted.secure_port}{chroot}"
        with pytest.raises(StoreUnavailable):
            await find_brokers(address, 2.0)
        path = tmp_path / "zookeeper.properties"
        path.write_text(
            "zookeeper.ssl.client.enable=true\n"
            f"zookeeper.ssl.truststore.location={made.ca}\n"
            f"zookeeper.ssl.keystore.location={client_pem(made)}\n"
        )
        monkeypatch.setenv(ENVIRONMENT, str(path))
        assert await find_brokers(address, 10.0, "SASL_SSL") == [("outside", 9093)]
        assert await find_brokers(address, 10.0) == [("inside", 9092)]
        assert await find_brokers(address, 10.0, "SSL") == []
