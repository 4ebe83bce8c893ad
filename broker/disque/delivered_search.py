"""Searches logs for delayed jobs that were delivered, one search of a partition at a time.

A search may read 64 MB. All jobs that are asked for while one is under way are found by the next
one together, so that no client occupies more than one thread for each partition.
"""

import asyncio

from qbus.records import ConsumerRecord

from ..partition.partition import Partition
from .reading import find_delivered

_Waiting = dict[tuple[int, int], asyncio.Future[ConsumerRecord | None]]


class DeliveredSearch:
    """Finds delivered jobs by the offsets of the delayed ones."""

    def __init__(self) -> None:
        self._waiting: dict[Partition, _Waiting] = {}
        self._searching: dict[Partition, asyncio.Task[None]] = {}

    async def find(
        self, partition: Partition, original_offset: int, due_ms: int
    ) -> ConsumerRecord | None:
        """The record of a job that was due at ``due_ms``; None: not found. Raises ApiError."""
        waiting = self._waiting.setdefault(partition, {})
        key = original_offset, due_ms
        future = waiting.get(key)
        if future is None:
            future = waiting[key] = asyncio.get_running_loop().create_future()
        if partition not in self._searching:
            self._searching[partition] = asyncio.create_task(self._search_all(partition))
        return await asyncio.shield(future)

    async def _search_all(self, partition: Partition) -> None:
        """Search until nothing is asked for."""
        try:
            while waiting := self._waiting.pop(partition, None):
                await self._search(partition, waiting)
        finally:
            del self._searching[partition]
            for future in self._waiting.pop(partition, {}).values():
                future.cancel()

    async def _search(self, partition: Partition, waiting: _Waiting) -> None:
        wanted: dict[int, int] = {}
        for offset, due_ms in waiting:
            wanted[offset] = min(due_ms, wanted.get(offset, due_ms))
        try:
            found = await asyncio.to_thread(
                find_delivered,
                *(partition.log, partition.topic, partition.index),
                *(wanted, partition.high_watermark),
            )
        except BaseException as error:
            for future in waiting.values():
                if isinstance(error, Exception):
                    future.set_exception(error)
                    future.exception()  # its client may be gone
                else:
                    future.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for (offset, _), future in waiting.items():
                future.set_result(found.get(offset))
