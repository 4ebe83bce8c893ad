"""Waiting at the brokers for the next records of many partitions."""

import asyncio
import time

from ...consumer.assignment import Assignment
from ...consumer.fetcher import Fetcher
from ...consumer.options import ConsumerOptions
from ...net.cluster import Cluster
from .offsets import Marks

_BYTES = 64 * 1024


class Watch:
    """Long polls that go on while the query works: news since the last wait ends the next at once.

    What they bring is thrown away. Each broker sends one batch of each partition, and then is asked
    no more until the next wait.
    """

    def __init__(self, cluster: Cluster, seconds: float, *, committed: bool) -> None:
        """seconds: how long a wait takes at most.
        committed: whether records of open transactions are no news.
        """
        self._seconds = seconds
        self._changed = asyncio.Event()
        self._assignment = Assignment()
        options = ConsumerOptions(
            offset_reset="none",
            fetch_min_bytes=1,
            fetch_max_bytes=_BYTES,
            partition_max_bytes=1,
            prefetch_bytes=_BYTES,
            fetch_max_wait=seconds,
            max_poll_records=1,
            check_crcs=False,
            read_committed=committed,
            rack=None,
            auto_commit=None,
        )
        self._fetcher = Fetcher(cluster, self._assignment, options, self._changed)

    async def wait(self, ends: Marks) -> None:
        """Return when there is a record at or behind ``ends``, or the time is over."""
        states = self._assignment.states
        self._assignment.remove([partition for partition in states if partition not in ends])
        self._assignment.add(ends)
        for partition, end in ends.items():
            if states[partition].position != end:
                self._assignment.seek(partition, end)
        deadline = time.monotonic() + self._seconds
        while not any(state.fetched for state in states.values()):
            self._changed.clear()
            self._fetcher.start()
            self._fetcher.responses.failure = None  # whoever looks at the partitions next is told
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            try:
                async with asyncio.timeout(remaining):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        """Give up what is in flight."""
        await self._fetcher.close()
