"""Those who wait for the records of a queue: they are called in the order in which they came."""

from collections import OrderedDict
from typing import Final

from .types import WaitedFor, Waiter

PROMISE_S: Final = 1.0
"""How long one who was called may take to come, before the others do not wait for that."""


class WaitingLine:
    """Calls no more of those who wait than there are records for.

    One who was called, and said that it comes, counts as long as it did not: so many records are
    for such. Whoever comes is taken for the one of them who was called first: that is right nearly
    always, and else another one is called in vain, or a second later. Times are of the event loop,
    in seconds.
    """

    __slots__ = ("_called", "_called_at", "_waiters")

    def __init__(self) -> None:
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        self._called: OrderedDict[Waiter, None] = OrderedDict()
        self._called_at = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    @property
    def promised(self) -> int:
        """How many were called, and are to come."""
        return len(self._called)

    def add(self, waiter: Waiter, *, again: bool) -> None:
        """Let ``waiter`` be the last; the first, if it comes ``again`` for it found nothing."""
        self._called.pop(waiter, None)
        self._waiters[waiter] = None
        if again:
            self._waiters.move_to_end(waiter, last=False)

    def forget(self, waiter: Waiter) -> None:
        """Do not call ``waiter``, or do not count on it."""
        self._called.pop(waiter, None)
        self._waiters.pop(waiter, None)

    def came(self) -> None:
        """Somebody came for records."""
        if self._called:
            self._called.popitem(last=False)

    def call(self, queue: WaitedFor, count: int, now: float) -> None:
        """Call those who wait, as ``count`` records are there."""
        waiters = self._waiters
        count -= len(self._called)
        while count > 0 and waiters:
            waiter, _ = waiters.popitem(last=False)
            self._called[waiter] = None
            self._called_at = now
            if waiter.ready(queue):
                count -= 1
            else:
                self._called.pop(waiter, None)

    def call_all(self, queue: WaitedFor) -> None:
        """Call all who wait: there will be nothing any more."""
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            waiter.ready(queue)

    def lose_patience(self, now: float) -> None:
        """Do not count any more on those who were called long ago."""
        if self._called and now - self._called_at >= PROMISE_S:
            self._called.clear()
