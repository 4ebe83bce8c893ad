"""Cutting a partition's log: in a thread, one cut at a time.

A log that is being cut must not be led, so whoever has a partition led waits for the end of that.
A cut that has begun goes on, whoever does not want to wait for it any more.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class LogStorage(Protocol):
    """Removes records at the end of logs; waits for disks, so it is for threads."""

    def truncate(self, topic: str, partition: int, offset: int) -> int:
        """Cut a log back to ``offset``, and return where it ends then."""

    def restart_at(self, topic: str, partition: int, offset: int) -> None:
        """Drop all that a log has, and let it go on with ``offset``."""


class Truncation:
    """The cut of one log that is under way, if there is one. For the event loop."""

    __slots__ = ("_cutting",)

    def __init__(self) -> None:
        self._cutting: asyncio.Future[object] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the log is being cut."""
        return self._cutting is not None

    async def over(self) -> None:
        """Wait until the log is not being cut."""
        while self._cutting is not None:
            await asyncio.wait([self._cutting])

    async def run(self, cut: Callable[[], object], after: Callable[[], object]) -> None:
        """Cut in a thread; the log must not be being cut. Raises what ``cut`` does.

        ``after`` is called in the event loop when it is done, be it that nobody waits any more.
        """
        cutting = asyncio.get_running_loop().run_in_executor(None, cut)
        self._cutting = cutting

        def done(_: asyncio.Future[object]) -> None:
            self._cutting = None
            after()

        cutting.add_done_callback(done)
        await asyncio.wait([cutting])
        cutting.result()
