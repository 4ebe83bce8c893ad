"""Counts work on an event loop: calls of functions between two of its ticks."""

import asyncio
import sys
from typing import Any, Self


class Meter:
    """Counts the calls of functions, Python's and C's, between two ticks of the event loop."""

    def __init__(self) -> None:
        self.most = 0
        self._calls = 0
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        self.most = self._calls = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        sys.setprofile(None)
        assert self._watching is not None
        self._watching.cancel()

    def _count(self, _frame: Any, event: str, _arg: Any) -> None:
        if event in {"call", "c_call"}:
            self._calls += 1

    async def _watch(self) -> None:
        while True:
            self.most = max(self.most, self._calls)
            self._calls = 0
            await asyncio.sleep(0)
