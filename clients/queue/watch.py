"""Waiting until jobs are done: the partitions' logs say so, in batches hidden from consumers."""

import asyncio
from collections.abc import Awaitable, Callable

from qbus.errors import ApiError, CorruptBatch, QbusError
from qbus.records import BatchHeader
from qbus.records.control import ChangeKind
from qbus.service.backoff import Backoff

from ..batches import FetchLimits, fetch_batches, whole_batches
from ..batches.fetch import FetchedBatches
from ..errors import ClientClosed
from ..net.cluster import Cluster
from ..net.retry import Outcomes
from ..net.routing import ask_leaders
from ..types import TopicPartition
from .history import delivered_as, is_control, settlement

_FETCH_BYTES = 1024 * 1024
_LONGEST_WAIT = 1.0

Fetch = Callable[[TopicPartition, int], Awaitable[memoryview]]
_Told = asyncio.Future[bytes | None]


class JobGivenUp(QbusError):  # noqa: N818 - what happened
    """A job will not be done: it was given out too often, rejected, or came too late."""


class JobWatch:
    """Follows the logs of partitions for as long as somebody waits for a job there."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._tails: dict[TopicPartition, LogTail] = {}

    async def wait(
        self, partition: TopicPartition, offset: int, *, is_delayed: bool
    ) -> bytes | None:
        """Return the result of a job when it is done; None: it has none.

        offset: what its producer was told.

        Raises :class:`JobGivenUp`, and :class:`~qbus.errors.ApiError`: OFFSET_OUT_OF_RANGE when the
        log does not reach back to the job any more.
        """
        tail = self._tails.get(partition)
        if tail is None:
            tail = self._tails[partition] = LogTail(partition, self._group, self._fetch)
        return await tail.wait(offset, is_delayed=is_delayed)

    async def close(self) -> None:
        """Stop following; whoever still waits gets :class:`~qbus.clients.ClientClosed`."""
        await asyncio.gather(*(tail.close() for tail in self._tails.values()))

    async def _fetch(self, partition: TopicPartition, position: int) -> memoryview:
        limits = FetchLimits(_FETCH_BYTES, _FETCH_BYTES, max_wait=_LONGEST_WAIT)

        async def ask(
            node: int, led: list[TopicPartition]
        ) -> Outcomes[TopicPartition, FetchedBatches]:
            offsets = dict.fromkeys(led, position)
            return await fetch_batches(self._cluster, node, offsets, limits, hidden=True)

        return (await ask_leaders(self._cluster, [partition], ask))[partition].records


class LogTail:
    """One partition's log, from the first job on that somebody waits for.

    A wait for an earlier job than the last has the log read again from there.
    """

    def __init__(self, partition: TopicPartition, group: str, fetch: Fetch) -> None:
        """``fetch`` returns batches of the partition from an offset on, hidden ones included."""
        self._partition = partition
        self._group = group
        self._fetch = fetch
        self._position = 0
        self._waiting: dict[int, list[_Told]] = {}
        self._delayed: dict[int, list[_Told]] = {}  # by the offsets that their producers were told
        self._results: dict[int, bytes] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, offset: int, *, is_delayed: bool) -> bytes | None:
        """Return the result of the job at ``offset`` when it is done; raise
        :class:`JobGivenUp`.
        """
        told: _Told = asyncio.get_running_loop().create_future()
        waiting = self._delayed if is_delayed else self._waiting
        waiting.setdefault(offset, []).append(told)
        if self._task is None or self._task.done():
            self._position = offset
            self._task = asyncio.create_task(self._run())
        else:
            self._position = min(self._position, offset)
        try:
            return await told
        finally:
            self._forget(told)

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(ClientClosed())

    async def _run(self) -> None:
        backoff = Backoff()
        while self._waiting or self._delayed:
            position = self._position
            try:
                records = await self._fetch(self._partition, position)
                if self._position == position:  # else somebody waits for an earlier job
                    for header, batch in whole_batches(records, position):
                        self._see(header, batch)
                        self._position = header.last_offset + 1
                backoff.succeeded()
            except ApiError as error:
                if not error.retriable or isinstance(error, CorruptBatch):
                    self._fail(error, position)
                await asyncio.sleep(backoff.failed())
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - told to those who wait
                self._fail(error)

    def _see(self, header: BatchHeader, batch: memoryview) -> None:
        if is_control(header):
            self._see_control(batch)
        elif self._delayed and not header.is_delayed:
            for told, offset in delivered_as(batch):
                if told in self._delayed:
                    self._waiting.setdefault(offset, []).extend(self._delayed.pop(told))

    def _see_control(self, batch: memoryview) -> None:
        changes, results = settlement(batch, self._group)
        self._results |= {
            offset: body for offset, body in results.items() if offset in self._waiting
        }
        for change in changes:
            for offset in [o for o in self._waiting if change.first <= o <= change.last]:
                result = self._results.pop(offset, None)
                for told in self._waiting.pop(offset):
                    if told.done():
                        continue
                    if change.kind is ChangeKind.ARCHIVED:
                        told.set_exception(self._given_up(offset))
                    else:
                        told.set_result(result)

    def _given_up(self, offset: int) -> JobGivenUp:
        topic, index = self._partition
        return JobGivenUp(f"the job at offset {offset} of {topic}-{index} was given up")

    def _forget(self, told: _Told) -> None:
        for waiting in (self._waiting, self._delayed):
            for offset, several in list(waiting.items()):
                if told in several:
                    several.remove(told)
                    if not several:
                        del waiting[offset]

    def _fail(self, error: Exception, up_to: int | None = None) -> None:
        """Fail who waits for jobs at offsets ``up_to`` that, or for any; read on for the others."""
        for waiting in (self._waiting, self._delayed):
            for offset in [o for o in waiting if up_to is None or o <= up_to]:
                for told in waiting.pop(offset):
                    if not told.done():
                        told.set_exception(error)
        self._position = min((*self._waiting, *self._delayed), default=self._position)
