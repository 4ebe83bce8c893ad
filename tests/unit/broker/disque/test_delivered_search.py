"""Searches for delivered jobs: one at a time for a partition, for all who ask meanwhile."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from qbus.broker.disque import delivered_search
from qbus.broker.disque.delivered_search import DeliveredSearch
from qbus.errors import ApiError, ErrorCode
from tests.support.waiting import eventually


class Searches:
    """The searches that are made; the first one goes on when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[dict[int, int]] = []
        self.may_end = threading.Event()
        self.error: Exception | None = None
        monkeypatch.setattr(delivered_search, "find_delivered", self._find)

    def _find(self, *arguments: Any) -> Mapping[int, str]:
        wanted = arguments[3]
        self.made.append(dict(wanted))
        assert self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        return {offset: f"record {offset}" for offset in wanted if offset < 100}


PARTITION: Any = Mock(topic="q", index=0, high_watermark=1000)


async def test_those_who_ask_meanwhile_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, search = Searches(monkeypatch), DeliveredSearch()
    first = asyncio.ensure_future(search.find(PARTITION, 1, 10))
    await eventually(lambda: searches.made)
    others = [asyncio.ensure_future(search.find(PARTITION, n, n)) for n in (2, 3, 500, 2)]
    await asyncio.sleep(0)
    searches.may_end.set()
    found: list[Any] = await asyncio.gather(first, *others)
    assert found == ["record 1", "record 2", "record 3", None, "record 2"]
    assert searches.made == [{1: 10}, {2: 2, 3: 3, 500: 500}]


async def test_all_are_told_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, search = Searches(monkeypatch), DeliveredSearch()
    searches.may_end.set()
    searches.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk fails")
    asked = [search.find(PARTITION, number, 0) for number in (1, 2)]
    failures = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(one, "code", None) for one in failures] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    searches.error = None
    assert await search.find(PARTITION, 1, 0)


async def test_one_who_goes_away_stops_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, search = Searches(monkeypatch), DeliveredSearch()
    gone = asyncio.ensure_future(search.find(PARTITION, 1, 0))
    stays = asyncio.ensure_future(search.find(PARTITION, 1, 0))
    await eventually(lambda: searches.made)
    gone.cancel()
    searches.may_end.set()
    found: Any = await stays
    assert found == "record 1"
