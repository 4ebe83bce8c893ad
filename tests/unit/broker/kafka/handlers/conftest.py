"""Handlers are tested over the wire, on real logs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.data_plane import DataPlane


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()
