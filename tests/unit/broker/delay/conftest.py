"""Partitions with delays."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from .delays import Line, WallClock

NewLine = Callable[..., Line]


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
async def new_line(tmp_path: Path, clock: WallClock) -> AsyncIterator[NewLine]:
    """Makes a partition; keywords are settings of its log."""
    made: list[Line] = []

    def new_line(**config: Any) -> Line:
        made.append(Line(tmp_path / f"t-{len(made)}", clock, **config))
        return made[-1]

    yield new_line
    for line in made:
        line.service.stop()


@pytest.fixture
async def line(new_line: NewLine) -> Line:
    return new_line()
