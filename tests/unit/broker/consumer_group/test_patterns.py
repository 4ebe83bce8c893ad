"""The topics that patterns match: found in a thread, once for all who ask, and kept up to date."""

import asyncio
import gc
from collections.abc import Collection

import pytest

from qbus.broker import regular_expression
from qbus.broker.consumer_group import patterns as module
from qbus.broker.consumer_group.patterns import TopicPatterns
from qbus.broker.regular_expression import InvalidRegularExpression


class Searches:
    """Counts the names that are compared with patterns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, frozenset[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(module, "find_matching", self.find)

    async def find(self, text: str, names: Collection[str]) -> frozenset[str]:
        self.made.append((text, frozenset(names)))
        await self.gate.wait()
        return await regular_expression.find_matching(text, names)


@pytest.fixture
def topics() -> set[str]:
    return {"ta", "u"}


@pytest.fixture
def patterns(topics: set[str]) -> TopicPatterns:
    return TopicPatterns(lambda: topics)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_who_ask_for_the_same_pattern_wait_for_one_search(
    patterns: TopicPatterns, searches: Searches
) -> None:
    found = await asyncio.gather(*(patterns.resolve("t.*") for _ in range(100)))
    assert {one.topics for one in found} == {frozenset({"ta"})}
    assert searches.made == [("t.*", frozenset({"ta", "u"}))]
    assert await patterns.resolve("t.*") is found[0] is patterns.find("t.*")


async def test_a_pattern_that_nothing_refers_to_is_forgotten(patterns: TopicPatterns) -> None:
    await patterns.resolve("t.*")
    await settle()
    gc.collect()
    assert patterns.find("t.*") is None


async def test_an_invalid_pattern_is_refused_to_all_who_ask(patterns: TopicPatterns) -> None:
    found = await asyncio.gather(*(patterns.resolve("(") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [InvalidRegularExpression] * 3
    with pytest.raises(InvalidRegularExpression):
        await patterns.resolve("(")


async def test_topics_that_come_during_the_search_are_found(
    patterns: TopicPatterns, searches: Searches, topics: set[str]
) -> None:
    searches.gate.clear()
    asking = asyncio.create_task(patterns.resolve("t.*"))
    await settle()
    topics.add("tb")
    searches.gate.set()
    assert (await asking).topics == {"ta", "tb"}
    assert searches.made[1:] == [("t.*", frozenset({"tb"}))]


async def test_the_search_goes_on_for_others_when_one_who_asked_is_gone(
    patterns: TopicPatterns, searches: Searches
) -> None:
    searches.gate.clear()
    first, second = (asyncio.create_task(patterns.resolve("t.*")) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    searches.gate.set()
    assert (await second).topics == {"ta"}


async def test_new_topics_are_compared_once_and_changes_are_reported(
    patterns: TopicPatterns, searches: Searches, topics: set[str]
) -> None:
    changed = asyncio.Event()
    known = await patterns.resolve("t.*")
    other = await patterns.resolve("v.*")
    topics |= {"tb", "w"}
    topics.remove("u")
    del searches.made[:]
    patterns.follow(changed.set)
    patterns.follow(changed.set)
    async with asyncio.timeout(10):
        await changed.wait()
    assert known.topics == {"ta", "tb"}
    assert not other.topics
    assert sorted(searches.made) == [(text, frozenset({"tb", "w"})) for text in ("t.*", "v.*")]
    topics.remove("ta")
    changed.clear()
    patterns.follow(changed.set)
    async with asyncio.timeout(10):
        await changed.wait()
    assert known.topics == {"tb"}


async def test_a_change_that_no_pattern_matches_is_not_reported(
    patterns: TopicPatterns, searches: Searches, topics: set[str]
) -> None:
    known = await patterns.resolve("t.*")
    reports: list[None] = []
    topics.add("x")
    patterns.follow(lambda: reports.append(None))
    async with asyncio.timeout(10):
        while known.seen != topics:  # noqa: ASYNC110 - a pattern has no events
            await asyncio.sleep(0.01)
    await settle()
    assert not reports


async def test_nothing_is_compared_where_no_pattern_is_in_use(
    patterns: TopicPatterns, searches: Searches
) -> None:
    patterns.follow(pytest.fail)
    await settle()
    assert not searches.made


async def test_comparing_stops_when_it_is_closed(
    patterns: TopicPatterns, searches: Searches, topics: set[str]
) -> None:
    known = await patterns.resolve("t.*")
    searches.gate.clear()
    topics.add("tb")
    patterns.follow(pytest.fail)
    await settle()
    patterns.close()
    searches.gate.set()
    await settle()
    assert known.topics == {"ta"}
