"""The items of runs, one after another, for ``async for``."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class AsyncRuns(AsyncIterator[T], Generic[T]):
    """Iterates over the items of iterators, which ``more`` returns, and then None.

    An item is taken from its iterator when it is awaited. ``close`` closes what ``more`` reads.
    """

    def __init__(
        self,
        more: Callable[[], Awaitable[Iterator[T] | None]],
        close: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._more = more
        self._close = close
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

    async def aclose(self) -> None:
        """Close the source and end the iteration, as an asynchronous generator does.

        Raises RuntimeError, as that does, while somebody waits for an item of such a source.
        """
        if self._close is not None:
            await self._close()
        self._more = _no_more
        self._run = iter(())


async def _no_more() -> None:
    return None
