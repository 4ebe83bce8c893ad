"""One controller at a time; what a former one writes, the store refuses."""

from pathlib import Path

import pytest

from qbus.broker.controller.office import Office
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, Delete, EmbeddedStore, VersionConflict
from qbus.metadata.znodes import CONTROLLER, CONTROLLER_EPOCH, ControllerEpochNode, ControllerNode


async def test_the_first_to_ask_gets_it(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        first, second = Office(store, 1, ManualClock()), Office(store, 2, ManualClock())
        assert await first.take()
        assert not await second.take()
        assert first.is_held
        assert not second.is_held
        assert await first.take(), "it has it already"
        node = await store.get(CONTROLLER)
        assert node is not None
        assert ControllerNode.decode(node.data).broker == 1


async def test_each_holder_counts(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        async with EmbeddedStore(tmp_path / "m.db") as store:
            office = Office(store, 1, ManualClock())
            await office.take()
            assert office.epoch == expected
            node = await store.get(CONTROLLER_EPOCH)
            assert node is not None
            assert ControllerEpochNode.decode(node.data).epoch == expected


async def test_a_former_holder_is_fenced(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        former, present = Office(store, 1, ManualClock()), Office(store, 2, ManualClock())
        await former.take()
        await store.transaction([former.fence(), Create("/a")])
        await store.transaction([Delete(CONTROLLER)])  # its session ended
        assert await present.take()
        with pytest.raises(VersionConflict) as refused:
            await store.transaction([former.fence(), Create("/b")])
        assert refused.value.path == CONTROLLER_EPOCH
        await store.transaction([present.fence(), Create("/b")])


async def test_without_the_office_nothing_can_be_written(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        office = Office(store, 1, ManualClock())
        with pytest.raises(ApiError) as refused:
            office.fence()
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await office.take()
        office.lose()
        with pytest.raises(ApiError):
            office.fence()
