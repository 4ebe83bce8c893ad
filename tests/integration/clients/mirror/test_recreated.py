"""A source's topic that is deleted and created again, too quickly for anybody to see it gone."""

from dataclasses import replace

import pytest

from qbus.clients.mirror.config import Topics
from qbus.clients.mirror.status import Trouble

from .scene import Held, Idcs, Scene, eventually, reached

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def test_nothing_of_the_new_one_comes_to_the_copy(idcs: Idcs, name: str) -> None:
    async with Scene(idcs, name) as s:
        s.config = replace(s.config, topics_at_target=Topics(discovery_interval_ms=3_600_000))
        await s.source.create_topic(name, partitions=1)
        await s.send(0)
        here = Held(s.config.source_bootstrap)
        async with s.link(here) as link:
            await eventually(link, reached(50))
            before = await s.batches(s.there, s.copy, 0)
            await here.hold()
            await s.source.delete_topic(name)
            await s.source.create_topic(name, partitions=1)
            await s.send(0, count=30)
            here.let_go()
            await eventually(
                link, lambda found: [one.trouble for one in found] == [Trouble.SOURCE_RECREATED]
            )
            assert await s.batches(s.there, s.copy, 0) == before
