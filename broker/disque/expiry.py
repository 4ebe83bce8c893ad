"""Jobs beyond their time to live in queues that nobody takes from are done, and give room.

Where jobs are taken, those that are too old are passed over and done as their turn comes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from qbus.errors import ApiError
from qbus.records import ConsumerRecord

from ..queues import RecordStatus
from .job_queue import JobQueue, Part
from .queues import JobSettings
from .reading import created_ms, read_some

_log = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
_BYTES: Final = 256 * 1024
_MOST: Final = 20_000  # jobs of a partition in one round


class Expiry:
    """Drops what is too old from the front of queues, round by round."""

    def __init__(self, settings: JobSettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms

    async def run(self, queues: Callable[[], Iterable[JobQueue]]) -> None:
        """Look at all queues again and again."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.look(queues())

    async def look(self, queues: Iterable[JobQueue]) -> int:
        """Drop what is too old; how many jobs."""
        dropped = 0
        for queue in queues:
            for part in queue.parts:
                try:
                    dropped += await self._drop(part)
                except (ApiError, OSError) as error:
                    _log.debug("%s: old jobs are not dropped: %s", part.partition, error)
        return dropped

    async def _drop(self, part: Part) -> int:
        queue, partition = part.queue, part.partition
        offset, dropped = queue.start_offset, 0
        while queue.length and dropped < _MOST:
            end = partition.high_watermark
            records, following = await asyncio.to_thread(
                read_some, partition.log, partition.topic, partition.index, offset, end, _BYTES
            )
            old = [record.offset for record in records if self._is_old(part, record)]
            await asyncio.gather(*map(queue.settle, old))
            dropped += len(old)
            if not old or following <= offset:
                break
            offset = following
        return dropped

    def _is_old(self, part: Part, record: ConsumerRecord) -> bool:
        """Whether nobody has a job, and nobody is to get it any more."""
        options = self._settings.options_of(record.headers)
        if options.ttl is None:
            return False
        ends = created_ms(record.timestamp, record.headers, options) + 1000 * options.ttl
        if ends >= self._now_ms():
            return False
        return part.queue.state_of(record.offset).status is RecordStatus.QUEUED
