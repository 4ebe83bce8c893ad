"""The same work on many things at a time, because each waits for a disk."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(threads: int, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``work`` on each item, ``threads`` at a time, one being the caller's; raises what it does."""
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), "qbus-log") as pool:
        return list(pool.map(work, items))
