"""A broker registers once at a time, each time under a new epoch."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import (
    announce_stop,
    ensure_cluster_id,
    expire_previous_registration,
    raise_broker_epoch,
    register_broker,
    unregister_broker,
)
from qbus.clock import ManualClock
from qbus.errors import ConfigError
from qbus.metadata import Create, Delete, EmbeddedStore, MetadataStore, Set
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import follow, newest
from qbus.metadata.ids import decode_id
from qbus.metadata.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    BrokerEpochNode,
    BrokerNode,
    ChangeNode,
    ControllerNode,
)

CLOCK = ManualClock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        yield store


def broker(epoch: int, directory: str = "disk-1") -> BrokerNode:
    return BrokerNode("bus.example", 9092, epoch, "r1", 5, directory)


async def registered(store: MetadataStore, node_id: int = 3) -> BrokerNode:
    node = broker(await raise_broker_epoch(store, node_id, CLOCK))
    await register_broker(store, node_id, node)
    return node


async def test_the_cluster_keeps_the_id_it_was_given(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        async with EmbeddedStore(tmp_path / "m.db") as store:
            ids |= {await ensure_cluster_id(store), await ensure_cluster_id(store)}
    (cluster_id,) = ids
    assert len(decode_id(cluster_id)) == 16


async def test_a_cluster_id_that_cannot_be_read_is_not_replaced(store: MetadataStore) -> None:
    await store.transaction([Create(CLUSTER_ID, b"?")])
    with pytest.raises(MalformedNode):
        await ensure_cluster_id(store)


async def test_each_registration_has_a_new_epoch(tmp_path: Path) -> None:
    for expected in range(3):
        async with EmbeddedStore(tmp_path / "m.db") as store:
            assert await raise_broker_epoch(store, 3, CLOCK) == expected
            epoch = await store.get(BrokerEpochNode.path(3))
            assert epoch is not None
            assert epoch.version == expected


async def test_a_registration_is_announced(store: MetadataStore) -> None:
    position = await newest(store)
    node = broker(await raise_broker_epoch(store, 3, CLOCK))
    assert await register_broker(store, 3, node) == position + 1
    found = await store.get(BrokerNode.path(3))
    assert found is not None
    assert BrokerNode.decode(found.data) == node
    (change,) = await anext(follow(store, position))
    assert ChangeNode.decode(change.data) == ChangeNode(cluster=True)


async def test_a_broker_fenced_meanwhile_is_not_registered(store: MetadataStore) -> None:
    former = await raise_broker_epoch(store, 3, CLOCK)
    await raise_broker_epoch(store, 3, CLOCK)
    with pytest.raises(ConfigError, match=r"node\.id=3: a broker with this id is running"):
        await register_broker(store, 3, broker(former))
    assert await store.get(BrokerNode.path(3)) is None


async def test_an_id_is_registered_once_at_a_time(store: MetadataStore) -> None:
    await registered(store)
    with pytest.raises(ConfigError, match=r"node\.id=3: a broker with this id is running"):
        await expire_previous_registration(store, 3, "disk-2")
    epoch = await store.get(BrokerEpochNode.path(3))
    assert epoch is not None
    assert epoch.version == 0, "the refused one did not fence the other"


async def test_a_registration_with_the_same_directory_is_removed_at_once(
    store: MetadataStore,
) -> None:
    await registered(store)
    position = await newest(store)
    await expire_previous_registration(store, 3, "disk-1")
    assert await store.get(BrokerNode.path(3)) is None
    (change,) = await anext(follow(store, position))
    assert ChangeNode.decode(change.data).cluster, "so that it is taken out of what it led"


@pytest.mark.parametrize("data", [b"?", broker(0, "").encode()])
async def test_a_registration_that_does_not_say_whose_it_is_is_somebody_elses(
    store: MetadataStore, data: bytes
) -> None:
    await store.transaction([Create(BrokerNode.path(3), data)])
    with pytest.raises(ConfigError, match="is running"):
        await expire_previous_registration(store, 3, "")


async def test_the_registration_of_another_directory_is_waited_out(store: MetadataStore) -> None:
    await registered(store)
    waiting = asyncio.ensure_future(expire_previous_registration(store, 3, "disk-2", timeout_s=60))
    await store.transaction([Create(BrokerNode.path(4), ephemeral=True)])
    await asyncio.sleep(0.05)
    assert not waiting.done(), "another broker came, this one did not go"
    await store.transaction([Delete(BrokerNode.path(3))])
    await waiting


async def test_waiting_for_a_registration_to_end_times_out(store: MetadataStore) -> None:
    await registered(store)
    with pytest.raises(ConfigError, match="is running"):
        await expire_previous_registration(store, 3, "disk-2", timeout_s=0.05)


async def test_a_stopping_broker_announces_it(store: MetadataStore) -> None:
    node = await registered(store)
    position = await newest(store)
    assert await announce_stop(store, 3, node) == position + 1
    found = await store.get(BrokerNode.path(3))
    assert found is not None
    assert BrokerNode.decode(found.data) == node._replace(is_stopping=True)


async def test_only_a_registered_broker_can_announce_its_stop(store: MetadataStore) -> None:
    node = await registered(store)
    await unregister_broker(store, 3, node.epoch)
    assert await announce_stop(store, 3, node) is None
    await unregister_broker(store, 3, node.epoch)
    successor = await registered(store)
    assert await announce_stop(store, 3, node) is None, "that is another life"
    assert await announce_stop(store, 3, successor) is not None


async def test_unregistering_a_controller_removes_the_controller_node_too(
    store: MetadataStore,
) -> None:
    node = await registered(store)
    theirs = ControllerNode(3, 0, node.epoch - 1).encode()
    await store.transaction([Create(CONTROLLER, theirs)])
    await unregister_broker(store, 3, node.epoch)
    assert await store.get(BrokerNode.path(3)) is None
    assert await store.get(CONTROLLER) is not None, "that is another's, or another life's"
    node = await registered(store)
    await store.transaction([Set(CONTROLLER, ControllerNode(3, 0, node.epoch).encode())])
    await unregister_broker(store, 3, node.epoch)
    assert await store.get(CONTROLLER) is None


async def test_a_previous_run_does_not_unregister_its_successor(store: MetadataStore) -> None:
    former = await registered(store)
    await expire_previous_registration(store, 3, "disk-1")
    await registered(store)
    await unregister_broker(store, 3, former.epoch)
    assert await store.get(BrokerNode.path(3)) is not None
