"""A node that serves jobs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .jobs import Jobs


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    made = Jobs(tmp_path)
    await made.start()
    yield made
    await made.stop()
