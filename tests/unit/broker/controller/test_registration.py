"""A broker registers under a new epoch each time, and only once at a time."""

import asyncio
from pathlib import Path

import pytest

from qbus.broker.controller import check_alone, ensure_cluster_id, register_broker
from qbus.broker.metadata_image import BrokerInfo
from qbus.clock import ManualClock
from qbus.errors import ConfigError
from qbus.metadata import Create, Delete, EmbeddedStore
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import newest
from qbus.metadata.ids import decode_id
from qbus.metadata.znodes import CLUSTER_ID, BrokerEpochNode, BrokerNode, ChangeNode

BROKER = BrokerInfo(3, "bus.example", 9092, "r1")


async def test_the_cluster_keeps_the_id_it_was_given(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        async with EmbeddedStore(tmp_path / "m.db") as store:
            ids |= {await ensure_cluster_id(store), await ensure_cluster_id(store)}
    (cluster_id,) = ids
    assert len(decode_id(cluster_id)) == 16


async def test_a_cluster_id_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await store.transaction([Create(CLUSTER_ID, b"?")])
        with pytest.raises(MalformedNode):
            await ensure_cluster_id(store)


async def test_each_registration_has_a_new_epoch_and_is_announced(tmp_path: Path) -> None:
    clock = ManualClock()
    for expected in range(3):
        async with EmbeddedStore(tmp_path / "m.db") as store:
            position = await newest(store)
            assert await register_broker(store, BROKER, clock) == expected
            node = await store.get(BrokerNode.path(3))
            assert node is not None
            assert BrokerNode.decode(node.data) == BrokerNode(
                "bus.example", 9092, expected, "r1", clock.time_ms()
            )
            epoch = await store.get(BrokerEpochNode.path(3))
            assert epoch is not None
            assert epoch.version == expected
            (change,) = await anext(store.changes(position))
            assert ChangeNode.decode(change.data) == ChangeNode(cluster=True)


async def test_an_id_is_registered_once_at_a_time(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await register_broker(store, BROKER, ManualClock())
        with pytest.raises(ConfigError, match=r"node\.id=3: a broker with this id is running"):
            await register_broker(store, BROKER, ManualClock())
        epoch = await store.get(BrokerEpochNode.path(3))
        assert epoch is not None
        assert epoch.version == 0, "the refused one did not fence the other"


async def test_the_registration_of_a_broker_that_crashed_is_waited_out(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await register_broker(store, BROKER, ManualClock())
        waiting = asyncio.ensure_future(
            register_broker(store, BROKER, ManualClock(), patience_s=60)
        )
        await store.transaction([Create(BrokerNode.path(4), ephemeral=True)])
        await asyncio.sleep(0.05)
        assert not waiting.done(), "another broker came, this one did not go"
        await store.transaction([Delete(BrokerNode.path(3))])
        assert await waiting == 1


async def test_patience_ends(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await register_broker(store, BROKER, ManualClock())
        with pytest.raises(ConfigError, match="is running"):
            await register_broker(store, BROKER, ManualClock(), patience_s=0.05)


async def test_a_second_broker_is_turned_away(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await register_broker(store, BROKER, ManualClock())
        await check_alone(store, 3)
        await register_broker(store, BrokerInfo(4, "bus.example", 9093), ManualClock())
        with pytest.raises(ConfigError, match=r"node\.id=4: broker 3 keeps its metadata"):
            await check_alone(store, 4)
