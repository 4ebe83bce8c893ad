"""Work that runs only while the user's task is inside a poll.

A rebalance runs in the background, but revokes partitions and calls callbacks only when the user is
done with all records of earlier polls: in the next poll.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Work = Callable[[], Awaitable[None] | None]


class PollExecutor:
    """Hands work from a background task to the polling task."""

    def __init__(self, changed: asyncio.Event) -> None:
        """``changed`` is set when there is work, for a waiting poll."""
        self._changed = changed
        self._waiting: deque[tuple[Work, asyncio.Future[None]]] = deque()

    async def run_in_poll(self, work: Work) -> None:
        """Have ``work`` run in a poll; return when it is done. The poll raises what it raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        self._changed.set()
        await done

    async def run_pending(self) -> None:
        """Run the pending work, and what follows from it at once. Called by a poll."""
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
            await asyncio.sleep(0)  # the background task may submit more
