"""Those who wait for the records of a queue: they are called in the order in which they came."""

from collections import OrderedDict
from typing import Final

from .types import WaitedFor, Waiter

PROMISE_S: Final = 1.0
"""How long one who was called may take to come, before the others do not wait for that."""


class WaitingLine:
    """Calls no more of those who wait than there are records for.

    One who was called, and said that it comes, counts as long as it did not: ``promised`` records
    are for such. Times are of the event loop, in seconds.
    """

    __slots__ = ("_called_at", "_waiters", "promised")

    def __init__(self) -> None:
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()
        self._called_at = 0.0
        self.promised = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def add(self, waiter: Waiter, *, again: bool) -> None:
        """Let ``waiter`` be the last; the first, if it comes ``again`` for it found nothing."""
        self.came()
        self._waiters[waiter] = None
        if again:
            self._waiters.move_to_end(waiter, last=False)

    def forget(self, waiter: Waiter) -> None:
        """Do not call ``waiter``, or do not count on it."""
        if waiter in self._waiters:
            del self._waiters[waiter]
        else:
            self.came()

    def came(self) -> None:
        """Somebody came: one of those who were called, perhaps."""
        if self.promised:
            self.promised -= 1

    def call(self, queue: WaitedFor, count: int, now: float) -> None:
        """Call those who wait, as ``count`` records are there."""
        waiters = self._waiters
        count -= self.promised
        while count > 0 and waiters:
            waiter, _ = waiters.popitem(last=False)
            self.promised += 1
            self._called_at = now
            if waiter.ready(queue):
                count -= 1
            else:
                self.came()

    def call_all(self, queue: WaitedFor) -> None:
        """Call all who wait: there will be nothing any more."""
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            waiter.ready(queue)

    def lose_patience(self, now: float) -> None:
        """Do not count any more on those who were called long ago."""
        if self.promised and now - self._called_at >= PROMISE_S:
            self.promised = 0
