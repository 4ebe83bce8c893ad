"""Partitions with queues."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .queues import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.plane.stop()
