"""Items of runs: both twins, whatever suspends, fails or is cancelled."""

import asyncio
import gc
import importlib
import math
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from operator import length_hint
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import IS_BUILT, MODULES

TWINS = [importlib.import_module(name) for name in list(MODULES.values())[: 1 + IS_BUILT]]

Step = list[int] | float | str


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


async def steps_of(steps: list[Step]) -> AsyncIterator[Iterator[int]]:
    """Runs; a number suspends, a text is an error."""
    for step in steps:
        if isinstance(step, str):
            raise ValueError(step)  # noqa: TRY004 - no fault of the type
        if isinstance(step, list):
            yield iter(step)
        else:
            await asyncio.sleep(step)


def runs_of(twin: ModuleType, steps: list[Step]) -> Any:
    return twin.AsyncRuns(partial(anext, steps_of(steps), None))


async def read(runs: Any) -> list[int | str]:
    found: list[int | str] = []
    for _ in range(2):  # what has ended stays so
        try:
            async for item in runs:
                found.append(item)  # noqa: PERF401 - those before an error count
        except ValueError as error:
            found.append(str(error))
    return found


@given(st.lists(st.lists(st.integers(), max_size=4) | st.just(0.0) | st.just("refused")))
def test_the_twins_give_the_same(steps: list[Step]) -> None:
    expected: list[int | str] = []
    for step in steps:
        if isinstance(step, list):
            expected += step
        elif isinstance(step, str):
            expected.append(step)
            break
    for twin in TWINS:
        assert asyncio.run(read(runs_of(twin, steps))) == expected


async def test_an_item_is_taken_when_it_is_awaited(twin: ModuleType) -> None:
    run = iter([1, 2, 3])
    runs = twin.AsyncRuns(partial(anext, one(run), None))
    assert await anext(runs) == 1
    asked = anext(runs)
    assert list(run) == [2, 3]
    with pytest.raises(StopAsyncIteration):
        await asked


async def one(run: Iterator[int]) -> AsyncIterator[Iterator[int]]:
    yield run


async def test_it_works_with_a_task_and_a_default(twin: ModuleType) -> None:
    runs = runs_of(twin, [0.0, [1, 2], 0.0, [3]])
    assert await asyncio.wait_for(anext(runs), 5.0) == 1
    assert await asyncio.wait_for(anext(runs), 5.0) == 2
    assert await anext(runs, "none") == 3
    assert await anext(runs, "none") == "none"


async def test_a_reader_cancelled_while_it_waits_loses_nothing(twin: ModuleType) -> None:
    release = asyncio.Event()
    ready: list[Iterator[int]] = [iter([1]), iter([2, 3])]

    async def more() -> Iterator[int] | None:
        if len(ready) == 1:
            await release.wait()
        return ready.pop(0) if ready else None

    runs = twin.AsyncRuns(more)
    assert await anext(runs) == 1
    waiting = asyncio.create_task(wait_for_next(runs))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert [item async for item in runs] == [2, 3]


async def wait_for_next(runs: Any) -> Any:
    return await anext(runs)


async def test_an_error_among_the_items_is_raised(twin: ModuleType) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise MemoryError

    runs = twin.AsyncRuns(partial(anext, one(broken()), None))
    assert await anext(runs) == 1
    with pytest.raises(MemoryError):
        await anext(runs)


async def test_an_item_is_awaited_once(twin: ModuleType) -> None:
    asked = runs_of(twin, [[1, 2]]).__anext__()
    assert await asked == 1
    with pytest.raises(RuntimeError, match="await"):
        await asked


@pytest.mark.parametrize("steps", [[[7]], [0.0, [7]]])
async def test_an_item_may_be_driven_by_hand(twin: ModuleType, steps: list[Step]) -> None:
    asked = runs_of(twin, steps).__anext__().__await__()
    waits = [asked.send(None) for step in steps if isinstance(step, float)]
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    assert ended.value.value == 7
    assert waits == [None] * (len(steps) - 1)


@pytest.mark.parametrize("drive", [lambda _: None, lambda asked: asked.send(None)])
async def test_an_item_may_be_given_up(twin: ModuleType, drive: Callable[[Any], object]) -> None:
    runs = runs_of(twin, [0.0, [7]])
    asked = runs.__anext__().__await__()
    drive(asked)
    with pytest.raises(KeyError):
        asked.throw(KeyError("given up"))
    asked = runs.__anext__().__await__()
    with suppress(StopIteration, StopAsyncIteration):
        drive(asked)
    asked.close()
    asked.close()


async def test_what_is_in_a_circle_is_collected(twin: ModuleType) -> None:
    class Holder:
        runs: Any

        async def more(self) -> Iterator[int] | None:
            return None

    holder = Holder()
    holder.runs = twin.AsyncRuns(holder.more)
    alive = weakref.ref(holder)
    del holder
    gc.collect()
    assert alive() is None


async def test_it_is_an_asynchronous_iterator(twin: ModuleType) -> None:
    runs = runs_of(twin, [[1]])
    assert isinstance(runs, AsyncIterator)
    assert isinstance(asked := runs.__anext__(), Awaitable)
    assert await asked == 1


async def test_closing_it_closes_its_source(twin: ModuleType) -> None:
    is_closed = False

    async def source() -> AsyncGenerator[Iterator[int], None]:
        nonlocal is_closed
        try:
            yield iter([1, 2])
            yield iter([3])
        finally:
            is_closed = True

    steps = source()
    async with aclosing(twin.AsyncRuns(partial(anext, steps, None), steps.aclose)) as runs:
        asked = anext(runs)
        assert await anext(runs) == 1
    assert is_closed
    with pytest.raises(StopAsyncIteration):
        await asked
    assert [item async for item in runs] == []
    await runs.aclose()


async def test_closing_it_while_somebody_waits_is_an_error(twin: ModuleType) -> None:
    arrived = asyncio.Event()

    async def source() -> AsyncGenerator[Iterator[int], None]:
        await arrived.wait()
        yield iter([1, 2])

    steps = source()
    runs = twin.AsyncRuns(partial(anext, steps, None), steps.aclose)
    waiting = asyncio.create_task(wait_for_next(runs))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already running"):
        await runs.aclose()
    arrived.set()
    assert await waiting == 1
    assert await anext(runs) == 2


async def test_one_without_a_close_ends_too(twin: ModuleType) -> None:
    runs = runs_of(twin, [[1, 2], [3]])
    assert await anext(runs) == 1
    await runs.aclose()
    assert [item async for item in runs] == []


class Pair(NamedTuple):
    first: int
    second: int


def held(twin: ModuleType, items: list[int], until: float = math.inf) -> tuple[Any, Iterator[int]]:
    """Held items, and where they come from, of which the slow way adds 100."""
    rest = iter(items)
    return twin.HeldItems(rest, until, lambda: next(rest) + 100), rest


def test_held_items_come_the_slow_way_until_they_are_quick(twin: ModuleType) -> None:
    items, rest = held(twin, [1, 2, 3, 4])
    assert next(items) == 101
    items.is_quick = True
    assert next(items) == 2
    assert length_hint(rest) == 2
    items.is_quick = False
    assert next(items) == 103
    items.is_quick = True
    assert list(items) == [4]


def test_they_come_the_slow_way_again_when_time_is_up(twin: ModuleType) -> None:
    items, _ = held(twin, [1, 2], until=time.monotonic() - 1)
    items.is_quick = True
    assert list(items) == [101, 102]


def test_the_slow_way_says_whether_there_are_more(twin: ModuleType) -> None:
    more = iter([5, 6])
    items = twin.HeldItems(iter([]), math.inf, lambda: next(more))
    items.is_quick = True
    assert list(items) == [5, 6]
    assert list(items) == []


def test_an_error_of_held_items_is_raised(twin: ModuleType) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise MemoryError

    items = twin.HeldItems(broken(), math.inf, lambda: 0)
    items.is_quick = True
    assert next(items) == 1
    with pytest.raises(MemoryError):
        next(items)


def test_another_item_behind_those_of_a_record(twin: ModuleType) -> None:
    (found,) = twin.with_item([(1,)], Pair, 2)
    assert found == Pair(1, 2)
    assert type(found) is Pair
    assert twin.with_item([], Pair, 2) == []
    assert twin.with_item([Pair(1, 2)], tuple, "x") == [(1, 2, "x")]


@pytest.mark.parametrize(
    ("records", "kind"), [([(1,)], list), ([(1,)], None), ([[1]], Pair), ([None], Pair)]
)
def test_only_tuples_get_another_item(twin: ModuleType, records: list[Any], kind: Any) -> None:
    with pytest.raises(TypeError, match="only tuples"):
        twin.with_item(records, kind, 2)
