"""Transaction coordinators on real partitions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .coordinators import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.stop()
