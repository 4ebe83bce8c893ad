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
    """Long polls for new records; those that arrived since the last wait end the next one at once.

    The fetched records are discarded. Each broker sends one batch of each partition, and is asked
    again only in the next wait.
    """

    def __init__(self, cluster: Cluster, seconds: float, *, committed: bool) -> None:
        """seconds: the longest wait.
        committed: whether records of open transactions are ignored.
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
        """Return when there is a record at or after ``ends``, or the time is over."""
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
            self._fetcher.responses.failure = None  # the next look-up of offsets reports it
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            try:
                async with asyncio.timeout(remaining):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        """Cancel requests in flight."""
        await self._fetcher.close()
