"""The items of runs: one after another for ``async for``, and those that are held for a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from time import monotonic
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])


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


class HeldItems(Iterator[T], Generic[T]):
    """The items of ``rest`` that ``more`` returns; it raises StopIteration when there are none.

    While ``is_quick``, which any thread may end, and before the time ``until`` of the monotonic
    clock, they come from ``rest`` itself.
    """

    def __init__(self, rest: Iterator[T], until: float, more: Callable[[], T]) -> None:
        self.is_quick = False
        self._rest = rest
        self._until = until
        self._more = more

    def __next__(self) -> T:
        if self.is_quick and monotonic() < self._until:
            for item in self._rest:
                return item
        return self._more()


def with_item(records: list[Any], kind: type[R], item: object) -> list[R]:
    """Return ``records``, which are tuples, as a ``kind`` of tuple that has ``item`` behind theirs.

    Raises TypeError for another kind.
    """
    made: object = kind
    if not (isinstance(made, type) and issubclass(made, tuple)):
        raise TypeError("only tuples are made")
    if not all(isinstance(record, tuple) for record in records):
        raise TypeError("only tuples have items")
    last = (item,)
    # Without the named tuple's constructor, which takes three times as long.
    return [tuple.__new__(kind, record + last) for record in records]
