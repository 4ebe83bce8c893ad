"""The items of runs, one after another, for ``async for``."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class AsyncRuns(AsyncIterator[T], Generic[T]):
    """Iterates over the items of iterators, which ``more`` returns, and then None.

    An item is taken from its iterator when it is awaited.
    """

    def __init__(self, more: Callable[[], Awaitable[Iterator[T] | None]]) -> None:
        self._more = more
        self._run: Iterator[T] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        for item in self._run:
            return item
        while (run := await self._more()) is not None:
            self._run = run
            for item in run:
                return item
        raise StopAsyncIteration
