"""There is one controller at a time, and the store refuses writes of a former one."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qbus.broker.controller.controller_election import ControllerElection
from qbus.broker.metadata.cache import MetadataCache
from qbus.clock import ManualClock
from qbus.config import BrokerConfig
from qbus.metadata import (
    Create,
    Delete,
    EmbeddedStore,
    MetadataStore,
    Op,
    Result,
    StoreUnavailable,
    VersionConflict,
)
from qbus.metadata.znodes import CONTROLLER, CONTROLLER_EPOCH, ControllerEpochNode, ControllerNode
from tests.support.waiting import eventually


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        yield store


@pytest.fixture
async def metadata(store: MetadataStore) -> AsyncIterator[MetadataCache]:
    metadata = MetadataCache(store, BrokerConfig(), retry_s=0.01)
    await metadata.start()
    yield metadata
    await metadata.close()


def election(
    store: MetadataStore, metadata: MetadataCache, node_id: int, epoch: int = 0
) -> ControllerElection:
    one = ControllerElection(store, metadata, node_id, ManualClock())
    one.broker_epoch = epoch
    return one


async def epoch_of(store: MetadataStore) -> int:
    node = await store.get(CONTROLLER_EPOCH)
    assert node is not None
    return ControllerEpochNode.decode(node.data).epoch


async def vacate(store: MetadataStore, metadata: MetadataCache) -> None:
    await store.transaction([Delete(CONTROLLER)])  # as when a session ends
    await eventually(lambda: metadata.cluster.controller is None)


async def test_the_first_to_ask_gets_it(store: MetadataStore, metadata: MetadataCache) -> None:
    first, second = election(store, metadata, 1, epoch=4), election(store, metadata, 2)
    assert await first.stand()
    assert not await second.stand()
    assert (first.is_held, second.is_held) == (True, False)
    assert await first.stand(), "it has it already"
    assert await epoch_of(store) == 1
    node = await store.get(CONTROLLER)
    assert node is not None
    assert ControllerNode.decode(node.data) == ControllerNode(1, ManualClock().time_ms(), 4)


async def test_each_holder_counts(store: MetadataStore, metadata: MetadataCache) -> None:
    for expected in (1, 2, 3):
        assert await election(store, metadata, expected).stand()
        assert metadata.cluster.controller_epoch == await epoch_of(store) == expected
        await vacate(store, metadata)


async def test_a_former_controller_is_fenced(store: MetadataStore, metadata: MetadataCache) -> None:
    former, present = election(store, metadata, 1), election(store, metadata, 2)
    await former.stand()
    fence = metadata.fence()
    await store.transaction([fence, Create("/a")])
    await vacate(store, metadata)
    assert not former.is_held
    assert await present.stand()
    with pytest.raises(VersionConflict) as refused:
        await store.transaction([fence, Create("/b")])
    assert refused.value.path == CONTROLLER_EPOCH
    await store.transaction([metadata.fence(), Create("/b")])


async def test_of_two_concurrent_candidates_one_wins(
    store: MetadataStore, metadata: MetadataCache
) -> None:
    """The second candidate does not know of the first one."""
    first = election(store, metadata, 1)
    theirs = ControllerNode(2, 0, 0).encode()
    await store.transaction([Create(CONTROLLER, theirs), Create(CONTROLLER_EPOCH, b"7")])
    assert metadata.cluster.controller is None
    assert not await first.stand()
    assert await epoch_of(store) == 7


async def test_an_answer_that_was_lost_is_found_out(
    store: MetadataStore, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = store.transaction

    async def losing(ops: Sequence[Op]) -> list[Result]:
        await transaction(ops)
        raise StoreUnavailable("the answer was lost")

    ours = election(store, metadata, 1, epoch=4)
    with monkeypatch.context() as broken:
        broken.setattr(store, "transaction", losing)
        with pytest.raises(StoreUnavailable):
            await ours.stand()
    await eventually(lambda: ours.is_held)
    assert await ours.stand()
    assert await epoch_of(store) == metadata.cluster.controller_epoch == 1


async def test_a_previous_controller_node_of_this_broker_is_replaced(
    store: MetadataStore, metadata: MetadataCache
) -> None:
    assert await election(store, metadata, 1, epoch=4).stand()
    former = metadata.fence()
    anew = election(store, metadata, 1, epoch=5)
    assert not anew.is_held
    assert await anew.stand()
    assert await epoch_of(store) == 2
    with pytest.raises(VersionConflict):
        await store.transaction([former, Create("/a")])


async def test_a_malformed_controller_node_is_left_alone(
    store: MetadataStore, metadata: MetadataCache
) -> None:
    await store.transaction([Create(CONTROLLER, b"?")])
    assert not await election(store, metadata, 1).stand()
    node = await store.get(CONTROLLER)
    assert node is not None
    assert node.data == b"?"
