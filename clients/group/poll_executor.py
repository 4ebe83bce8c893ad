"""Work that is done only while the user's task is inside a poll.

A rebalance goes on in the background, but may take partitions away, and call the user back, only
when the user has dealt with all records that polls returned: that is, in the next poll.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[None] | None]


class PollExecutor:
    """Hands work over from a background task to the one that polls."""

    def __init__(self, changed: asyncio.Event) -> None:
        """``changed`` is set when there is work, for a poll that waits."""
        self._changed = changed
        self._waiting: deque[tuple[Work, asyncio.Future[None]]] = deque()

    async def run_in_poll(self, work: Work) -> None:
        """Have ``work`` done in a poll, and return when it is. What it raises, the poll raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        self._changed.set()
        await done

    async def run_pending(self) -> None:
        """Do what waits, and what comes up at once when that is done; called by a poll."""
        while self._waiting:
            work, done = self._waiting.popleft()
            if done.cancelled():
                continue
            try:
                result = work()
                if result is not None:
                    await result
            finally:
                if not done.done():
                    done.set_result(None)
            await asyncio.sleep(0)  # the background task goes on, maybe to its next turn
