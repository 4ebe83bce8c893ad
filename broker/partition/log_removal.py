"""The logs of deleted topics, removed in the background: nobody waits for them.

What is to go is written down first (:mod:`qbus.broker.log.deleted_topics`). Then a thread takes the
logs out of the way, some at a time, and their files are removed ``file.delete.delay.ms`` later.
What fails is tried again, unless its data directory is offline: that is left to the next start.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice

from qbus.errors import ApiError

from ..log import LogManager, TopicPartition

_log = logging.getLogger(__name__)

_AT_ONCE = 64
_REST_S = 0.2  # whoever deletes gets the answer first


class LogRemoval:
    """Removes logs; ``len`` of it are still to go. For the event loop."""

    def __init__(self, logs: LogManager, threads: Executor) -> None:
        self._logs = logs
        self._threads = threads
        self._waiting: dict[TopicPartition, bytes] = {}
        self._in_doubt: set[bytes] = set()  # topics to be looked for when the broker starts
        self._told = 0  # how many could not be removed when that was last told
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def has(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Whether a log is still to go, because its topic was deleted."""
        return self._waiting.get(partition) == topic_id

    async def begin(self, logs: Mapping[TopicPartition, bytes]) -> None:
        """Remove logs, given with the ids of their topics; returns when that is written down.

        Where it cannot be written, they are removed all the same; a crash before that leaves them.
        """
        await asyncio.to_thread(self._logs.note_deleted, logs)
        self._waiting.update(logs)
        self._start(_REST_S)

    def retry(self) -> None:
        """Try again to remove what could not be removed."""
        self._start(0)

    async def stop(self) -> None:
        """Remove nothing any more: the next start does it. Returns when nothing is under way."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _start(self, after_s: float) -> None:
        if self._waiting and self._task is None and not self._stopping.is_set():
            self._task = asyncio.create_task(self._remove_all(after_s))

    async def _remove_all(self, after_s: float) -> None:
        try:
            if after_s:
                await _wait(self._stopping, after_s)
            tried: dict[TopicPartition, bytes] = {}
            failed: dict[TopicPartition, ApiError] = {}
            while not self._stopping.is_set() and (some := self._next(tried)):
                tried |= some
                failed |= await self._remove(some)
                if not self._next(tried):  # though more may come while that is written
                    left = {*self._waiting.values()}
                    await self._forget({*tried.values()} - left - self._in_doubt)
            self._tell(failed)
        finally:
            self._task = None

    def _next(self, tried: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, bytes]:
        """Some that were not tried yet; one may be there again, of another topic."""
        left = ((key, of) for key, of in self._waiting.items() if tried.get(key) != of)
        return dict(islice(left, _AT_ONCE))

    async def _remove(self, some: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, ApiError]:
        loop = asyncio.get_running_loop()
        errors = await loop.run_in_executor(
            self._threads, self._logs.delete_many, [*some], {*some.values()}
        )
        for key, topic_id in some.items():
            if key in errors:
                self._in_doubt.add(topic_id)
            is_over = key not in errors or self._logs.is_offline(key)
            if is_over and self._waiting.get(key) == topic_id:
                del self._waiting[key]
        return errors

    async def _forget(self, topic_ids: Collection[bytes]) -> None:
        if topic_ids:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._logs.forget_deleted, topic_ids)

    def _tell(self, failed: Mapping[TopicPartition, ApiError]) -> None:
        """Tell the operator of what is left, when that has changed."""
        again = {key: error for key, error in failed.items() if key in self._waiting}
        out_of_reach = failed.keys() - again.keys()
        if out_of_reach:
            _log.error(
                "%d logs of deleted topics, as %s, are in data directories that are offline: the"
                " start that can use these again removes them",
                *(len(out_of_reach), min(out_of_reach)),
            )
        if again and len(again) != self._told:
            first, error = next(iter(again.items()))
            _log.error(
                "%d logs of deleted topics could not be removed, as %s, and are tried again: %s",
                *(len(again), first, error),
            )
        self._told = len(again)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
