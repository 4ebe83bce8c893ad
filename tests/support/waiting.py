"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, timeout: float = 30.0, pause: float = 0.02
) -> T:
    """Return the first truthy result of ``condition``; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting after {timeout} s: {what} (last: {result!r})")
        time.sleep(pause)
