"""A bound on the memory that unfinished requests hold, for the whole broker."""

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that connections may hold for requests that are not whole yet.

    A connection that is refused stops reading and is called back, first come, first served. If
    every holder waited for another, none would ever finish; so one at a time may go over the
    limit until its request is whole: the hard bound is the limit and one request.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], object]] = deque()
        self._privileged: object | None = None

    def try_acquire(self, count: int, owner: object) -> bool:
        """Take ``count`` bytes for ``owner`` if they are there, or if it is its turn to go over."""
        if self.used + count > self.limit and owner is not self._privileged:
            if self._privileged is not None:
                return False
            self._privileged = owner
        self.used += count
        return True

    def force(self, count: int) -> None:
        """Account for ``count`` bytes that are held already."""
        self.used += count

    def wait(self, resume: Callable[[], object]) -> None:
        """Have ``resume`` called when trying again may succeed."""
        self._waiting.append(resume)

    def release(self, count: int) -> None:
        """Give ``count`` bytes back."""
        self.used -= count
        self._wake()

    def finished(self, owner: object) -> None:
        """``owner`` completed its request or is gone: the right to go over the limit is free."""
        if self._privileged is owner:
            self._privileged = None
            self._wake()

    def forget(self, resume: Callable[[], object]) -> None:
        """Stop waiting."""
        if resume in self._waiting:
            self._waiting.remove(resume)

    @property
    def waiting(self) -> int:
        """How many connections stand still for want of memory."""
        return len(self._waiting)

    def _wake(self) -> None:
        while self._waiting and (self.used < self.limit or self._privileged is None):
            before = len(self._waiting)
            self._waiting.popleft()()
            if len(self._waiting) >= before:  # it had to wait again
                return
