"""A source's topic that is deleted and created again, too quickly to be seen missing."""

import pytest

from .scene import Idcs, Scene, assert_nothing_of_a_new_topic_comes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def test_nothing_of_the_new_one_comes_to_the_copy(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        await assert_nothing_of_a_new_topic_comes(
            s, lambda: s.source.create_topic(name, partitions=1)
        )
