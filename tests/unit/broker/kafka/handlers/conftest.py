"""Handlers are tested over the wire, on real logs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.data_plane import DataPlane

from .share_plane import SharePlane
from .transaction_broker import TransactionBroker


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


@pytest.fixture
async def share(plane: DataPlane) -> AsyncIterator[SharePlane]:
    """Handlers of share groups, with a topic ``t`` of one partition."""
    await plane.create("t", qbus_durability="memory")
    share = SharePlane(plane)
    yield share
    await share.sessions.close()


@pytest.fixture
async def transactions(tmp_path: Path) -> AsyncIterator[TransactionBroker]:
    """A whole broker, with a topic ``t`` of three partitions."""
    async with TransactionBroker.running(tmp_path) as made:
        yield made
