"""Scenes, closed after their test."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from .scene import Scene

MakeScene = Callable[..., Scene]


@pytest.fixture
async def make_scene(tmp_path: Path) -> AsyncIterator[MakeScene]:
    """A function that makes a scene from broker settings."""
    scenes: list[Scene] = []

    def make(**config: object) -> Scene:
        scenes.append(Scene(tmp_path / "data", **config))
        return scenes[-1]

    yield make
    for scene in scenes:
        await scene.close()


@pytest.fixture
async def scene(make_scene: MakeScene) -> Scene:
    return make_scene()
