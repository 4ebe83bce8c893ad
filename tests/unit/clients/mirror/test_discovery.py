"""When the topics of a source are compared with those of the target again."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from qbus.clients.mirror import glance
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.discovery import Discovery
from qbus.clients.net.cluster import Cluster
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker

CONFIG = LinkConfig("a", "b", "s:1", "t:1", ("orders",))
SOON_S = 5.0
LONG_S = 60.0


@pytest.fixture
async def source() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"others": 1}) as broker:
        yield broker


@pytest.fixture
async def found(source: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Discovery]:
    monkeypatch.setattr(glance, "GLANCE_S", 0.01)
    cluster = Cluster(source.bootstrap, "test", 5.0)
    yield Discovery(CONFIG, cluster, cast("Any", None), cast("Any", None))
    await cluster.close()


def looks(source: FakeBroker) -> int:
    return len(source.asked(ApiKey.METADATA))


async def test_a_topic_that_is_made_is_news(source: FakeBroker, found: Discovery) -> None:
    waiting = asyncio.create_task(found.until_news(LONG_S, asyncio.Event()))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "topics that are not mirrored are no news"
    source.topics["orders"] = 1
    await asyncio.wait_for(waiting, SOON_S)


async def test_what_is_asked_for_is_not_waited_for(found: Discovery) -> None:
    asked_for = asyncio.Event()
    waiting = asyncio.create_task(found.until_news(LONG_S, asked_for))
    await asyncio.sleep(0.02)
    asked_for.set()
    await asyncio.wait_for(waiting, SOON_S)


async def test_without_news_it_is_time_at_last(source: FakeBroker, found: Discovery) -> None:
    began = time.monotonic()
    await found.until_news(0.1, asyncio.Event())
    assert time.monotonic() - began >= 0.1
    assert looks(source) > 1


async def test_a_source_that_cannot_be_asked_has_no_news(
    source: FakeBroker, found: Discovery
) -> None:
    await source.stop()
    began = time.monotonic()
    await found.until_news(0.1, asyncio.Event())
    assert time.monotonic() - began >= 0.1


async def test_a_source_whose_answers_take_long_is_seldom_looked_at(
    source: FakeBroker, found: Discovery
) -> None:
    honest: Callable[[Any], Any] = source.metadata

    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.1)
        return honest(request)

    source.handlers[ApiKey.METADATA] = slow
    await found.until_news(1.0, asyncio.Event())
    assert looks(source) <= 3
