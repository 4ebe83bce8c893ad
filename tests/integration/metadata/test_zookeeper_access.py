"""Chroots, passwords and limits."""

from uuid import uuid4

import pytest
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from qbus.metadata import (
    AccessDenied,
    Create,
    Delete,
    Node,
    NodeExists,
    Set,
    StoreUnusable,
    TransactionTooLarge,
)
from qbus.metadata.znodes import BrokerNode
from qbus.metadata.zookeeper import ZooKeeperAddress, find_brokers
from qbus.metadata.zookeeper.store import ZooKeeperStore
from tests.support.zookeeper_process import ZooKeeperProcess

from .sessions import CONNECTED, kazoo_client

pytestmark = pytest.mark.integration


@pytest.fixture
def chroot() -> str:
    return f"/{uuid4()}"


def store_at(server: ZooKeeperProcess, chroot: str, **options: object) -> ZooKeeperStore:
    address = ZooKeeperAddress.parse(server.bootstrap + chroot)
    return ZooKeeperStore(address, **options)  # type: ignore[arg-type]


async def test_no_secret_is_logged_however_much_is(
    zookeeper: ZooKeeperProcess, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with store_at(zookeeper, chroot, credentials="bus:the-password") as store:
        await store.transaction([Create("/config/users/alice", b"the-credential")])
        assert await store.get("/config/users/alice") is not None
    assert "connected" in caplog.text
    for secret in ("the-password", "the-credential"):
        assert secret not in caplog.text


# Chroots


async def test_a_chroot_is_made_and_everything_is_below(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async with store_at(zookeeper, chroot) as outside:
        async with store_at(zookeeper, f"{chroot}/deep/inside") as inside:
            assert await inside.transaction([Create("/a/b", b"x")]) == ["/a/b"]
            with pytest.raises(NodeExists) as refused:
                await inside.transaction([Create("/a/b")])
            assert refused.value.path == "/a/b"
            assert (await inside.tree("/")).keys() == {"/", "/a", "/a/b"}
        assert await outside.get("/deep/inside/a/b") == Node(b"x", 0)
        async with store_at(zookeeper, f"{chroot}/deep/inside") as again:
            assert await again.get("/a/b") == Node(b"x", 0)


async def test_without_a_chroot_the_root_is_the_root(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async with store_at(zookeeper, "") as store:
        assert await store.transaction([Create(f"{chroot}/a")]) == [f"{chroot}/a"]
        assert {chroot[1:], "zookeeper"} <= set(await store.children("/"))
        assert f"{chroot}/a" in await store.tree("/")


async def test_names_beyond_ascii(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async with store_at(zookeeper, f"{chroot}/bücher") as store:
        (path,) = await store.transaction([Create("/größe/名-", sequential=True)])
        assert await store.children("/größe") == [str(path).rpartition("/")[2]]


# Passwords


async def test_protected_nodes_are_read_by_all_and_written_by_one(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    ours = store_at(zookeeper, chroot, credentials="bus:secret", protect=True)
    others = store_at(zookeeper, chroot, credentials="bus:wrong", protect=True)
    async with ours, others, store_at(zookeeper, chroot) as nobody:
        await ours.transaction([Create("/a/b", b"x")])
        for store in (others, nobody):
            assert await store.get("/a/b") == Node(b"x", 0)
            assert await store.children("/a") == ["b"]
            for operation in (Set("/a/b", b"y"), Delete("/a/b"), Create("/a/c"), Create("/new")):
                with pytest.raises(AccessDenied) as denied:
                    await store.transaction([operation])
                assert denied.value.path == operation.path
            assert store.state is CONNECTED
        assert await ours.transaction([Set("/a/b", b"y"), Create("/a/c")]) == [1, "/a/c"]


async def test_unreadable_nodes_are_denied(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    with kazoo_client(zookeeper.bootstrap) as client:
        client.ensure_path(chroot)
        client.create(f"{chroot}/secret", b"", [make_digest_acl("x", "y", all=True)])
    async with store_at(zookeeper, chroot) as store:
        with pytest.raises(AccessDenied, match="denies access to /secret"):
            await store.get("/secret")
        with pytest.raises(AccessDenied):
            await store.children("/secret")
    with pytest.raises(StoreUnusable, match="denies access"):
        await store_at(zookeeper, f"{chroot}/secret/below").start()


async def test_nodes_are_created_below_one_that_may_not_be_read(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    with kazoo_client(zookeeper.bootstrap) as client:
        client.ensure_path(chroot)
        client.create(f"{chroot}/inbox", b"", [make_acl("world", "anyone", create=True)])
    async with store_at(zookeeper, chroot) as store:
        assert await store.transaction([Create("/inbox/a/b", b"x")]) == ["/inbox/a/b"]
        assert await store.get("/inbox/a/b") == Node(b"x", 0)


async def test_a_foreign_node_without_data_is_empty(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async with store_at(zookeeper, chroot) as store:
        with kazoo_client(zookeeper.bootstrap) as client:
            request = client.transaction()
            create = serialization.Create(f"{chroot}/null", None, OPEN_ACL_UNSAFE, 0)
            request.operations.append(create)
            request.commit()
        assert await store.get("/null") == Node(b"", 0)
        assert await store.tree("/null") == {"/null": Node(b"", 0)}


# Limits


async def test_a_transaction_too_large_for_zookeeper_is_not_sent(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async with store_at(zookeeper, chroot) as store:
        with pytest.raises(TransactionTooLarge, match=r"jute\.maxbuffer"):
            await store.transaction([Create("/large", bytes(1 << 20))])
        with pytest.raises(TransactionTooLarge):
            await store.transaction([Create(f"/n/{i}", bytes(100)) for i in range(10_000)])
        assert store.state is CONNECTED
        assert await store.children("/") == []


async def test_a_transaction_at_the_limit_is_accepted(
    zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    async with store_at(zookeeper, chroot, credentials="bus:secret", protect=True) as store:
        states: list[object] = []
        store.on_state(states.append)
        await store.transaction([Create("/large", bytes(1_048_400))])
        many = [Create(f"/n/{i}", bytes(30)) for i in range(7_500)]
        await store.transaction(many)
        assert len(await store.children("/n")) == len(many)
        assert states == []


# Finding brokers


async def test_clients_find_the_brokers(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    address = f"zk://{zookeeper.bootstrap}{chroot}"
    assert await find_brokers(address, 10) == []
    async with store_at(zookeeper, chroot) as store:
        for broker, host in ((10, "ten"), (2, "::2"), (1, "one")):
            node = BrokerNode(host, 9092 + broker, 0)
            await store.transaction([Create(node.path(broker), node.encode(), ephemeral=True)])
        await store.transaction([Create("/brokers/ids/3", b"{", ephemeral=True)])
        assert await find_brokers(address, 10) == [("one", 9093), ("::2", 9094), ("ten", 9102)]
    assert await find_brokers(address, 10) == []
