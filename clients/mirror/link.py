"""One link of a mirror: a source, a target, and the topics copied from the one to the other.

::

    discovery ---> which topics are ours to write ---> the group shares out their partitions
                                                                  |
      placing: where each goes on  <------------------------------+
         |            ^
         v            | failed
      reader ---> chunks ---> writer ---> acknowledged
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

from qbus.errors import ApiError, ErrorCode, QbusError

from ..admin import Admin
from ..net.cluster import Cluster
from ..types import TopicPartition
from .chunks import Chunk
from .config import LinkConfig
from .discovery import Discovery
from .partitions import Copy, Phase
from .reader import Reader
from .routes import Obstacle
from .sharing import Sharing
from .start_offsets import StartOffsetResolver
from .status import LinkStatus, PartitionState, PartitionStatus, Trouble
from .topics import TargetTopics
from .writer import Writer

_log = logging.getLogger(__name__)

_TICK = 0.1
_SOON = 1.0
"""Seconds that are always between two looks at what is to be mirrored."""
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Link:
    """Copies what ``config`` selects from ``source`` to ``target``, until it is cancelled.

    It keeps nothing: where it goes on is where the target's logs end. Several processes may run the
    same link: they share out its partitions, and take over each other's.
    """

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        """The clusters' owner closes them after :meth:`run`."""
        self._config = config
        self._target = target
        self._copies: dict[TopicPartition, Copy] = {}
        self._leaving: set[Copy] = set()
        self._left = asyncio.Event()
        self._records = self._bytes = 0
        self._to_place = asyncio.Event()
        self._to_discover = asyncio.Event()
        self._placing = StartOffsetResolver(source, target)
        self._reader = Reader(source, config, self, self._spawn)
        self._writer = Writer(target, config, self, self._spawn)
        admin = TargetTopics(config, Admin.over(target), lambda: len(target.metadata.nodes))
        self._discovery = Discovery(config, source, target, admin)
        self._sharing = Sharing(target, config, self._reconcile, self._release)
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Mirror until cancelled: then drain what was sent, and leave the group.

        What can pass by itself is tried again for ever, and told of by :meth:`status` meanwhile.
        Raises :class:`~qbus.errors.QbusError` for what cannot: a refused group, say.
        """
        failure: QbusError | None = None
        async with asyncio.TaskGroup() as self._tasks:
            background = [
                self._tasks.create_task(self._discover()),
                self._tasks.create_task(self._place()),
            ]
            try:
                await self._sharing.run()
            except QbusError as error:
                failure = error
            finally:
                for task in background:
                    task.cancel()
                await self._leave()
        if failure is not None:
            raise failure

    def status(self) -> LinkStatus:
        """How it is going: every partition that this process copies, or would if it could."""
        config, now_ms = self._config, int(time.time() * 1000)
        partitions = [copy.status(now_ms) for _, copy in sorted(self._copies.items())]
        for obstacle in self._discovery.obstacles:
            partitions += stopped_by(obstacle)
        return LinkStatus(
            name=config.name,
            source=config.source,
            target=config.target,
            partitions=tuple(partitions),
            records=self._records,
            bytes=self._bytes,
            duplicates=self._writer.repeated,
            error=self._discovery.error,
        )

    # What happens to copies: called by the reader and the writer.

    @property
    def held_bytes(self) -> int:
        """What was fetched and is still in memory."""
        return self._writer.held_bytes

    def arrived(self, copy: Copy, chunk: Chunk) -> None:
        """There is something to send."""
        self._writer.send(copy, chunk)

    def acknowledged(self, copy: Copy, chunk: Chunk) -> None:
        """The target has it."""
        copy.acknowledged(chunk)
        self._records += chunk.records_count
        self._bytes += len(chunk.records)

    def settled(self, copy: Copy) -> None:
        """A request with something of the copy is over: it may be placed, or fetched again."""
        self._reader.wake()
        if copy.sent == 0:
            self._leaving.discard(copy)
            self._left.set()
            if copy.phase is Phase.PLACING:
                self._to_place.set()

    def failed(self, copy: Copy, error: QbusError) -> None:
        """It cannot be fetched, or not sent, for now."""
        _log.info("%s: %s-%s: %s", self._config.name, *copy.source, error)
        copy.failed(error, time.monotonic())
        if isinstance(error, ApiError) and error.code in _GONE:
            self._to_discover.set()

    def refused(self, copy: Copy, error: QbusError) -> None:
        """The target does not take it."""
        self._reader.stop(copy)
        code = error.code if isinstance(error, ApiError) else None
        if code is ErrorCode.INVALID_RECORD:
            self._stop(copy, Trouble.SOURCE_LOST_DATA, str(error))
        elif code in {ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION}:
            self._stop(copy, Trouble.UNRELATED_TOPIC, str(error))
        else:
            self.failed(copy, error)

    def out_of_range(self, copy: Copy) -> None:
        """The source does not have what was asked for."""
        copy.overtaken()
        self._to_place.set()

    def _stop(self, copy: Copy, trouble: Trouble, reason: str) -> None:
        _log.error("%s: %s-%s is stopped: %s", self._config.name, *copy.source, reason)
        copy.stop(trouble, reason)

    # The tasks.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _discover(self) -> None:
        """See what is to be mirrored, again and again, and soon when a topic seems to be gone."""
        interval = self._config.topics_at_target.discovery_interval_ms / 1000
        soon = min(interval, _SOON)
        while True:
            self._to_discover.clear()
            is_settled = await self._discovery.look()
            self._sharing.subscribe(self._discovery.ways)
            self._reconcile()
            await asyncio.sleep(soon)
            if is_settled:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval - soon):
                        await self._to_discover.wait()

    async def _place(self) -> None:
        """Find out where copies go on, as they come up."""
        while True:
            now = time.monotonic()
            due = [copy for copy in self._copies.values() if copy.may_be_placed(now)]
            if due:
                await self._place_these(due)
                continue
            waits = any(copy.phase is Phase.PLACING for copy in self._copies.values())
            self._to_place.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK if waits else None):
                    await self._to_place.wait()

    async def _place_these(self, copies: list[Copy]) -> None:
        for copy, outcome in (await self._placing.place(copies)).items():
            if self._copies.get(copy.target) is not copy or copy.phase is not Phase.PLACING:
                continue
            if isinstance(outcome, ApiError):
                self.failed(copy, outcome)
                continue
            where, ends = outcome
            if where.reason not in {None, copy.error}:
                _log.error("%s: %s-%s: %s", self._config.name, *copy.source, where.reason)
            if copy.placed(where, ends):
                self._reader.start(copy)

    def _reconcile(self) -> None:
        """Copy exactly what is ours, both by the ways and by the group."""
        ways = self._discovery.ways
        wanted = {
            partition
            for partition in self._sharing.ours.active
            if partition.topic in ways and partition.partition < ways[partition.topic].partitions
        }
        for partition, copy in list(self._copies.items()):
            is_same = (
                partition in wanted
                and copy.provenance == ways[partition.topic].provenance
                and copy.source_id == self._discovery.source_id(copy.source.topic)
                and copy.target_id == self._discovery.target_id(partition.topic)
            )
            if not is_same:
                self._forget(copy)
        for copy in self._copies.values():
            copy.doubt()
        for partition in sorted(wanted - self._copies.keys()):
            way = ways[partition.topic]
            self._copies[partition] = Copy(
                TopicPartition(way.topic, partition.partition),
                partition,
                way.provenance,
                self._discovery.source_id(way.topic),
                self._discovery.target_id(partition.topic),
            )
        self._to_place.set()

    def _forget(self, copy: Copy) -> None:
        del self._copies[copy.target]
        self._reader.stop(copy)
        copy.release()
        if copy.sent:
            self._leaving.add(copy)

    async def _release(self) -> None:
        """Return when nothing of what was given up is on its way to the target any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.transfer.drain_timeout_ms / 1000):
                while self._leaving:
                    self._left.clear()
                    await self._left.wait()

    async def _leave(self) -> None:
        self._reader.close()
        await self._writer.drain(self._config.transfer.drain_timeout_ms / 1000)
        for task in self._under_way:
            task.cancel()
        await self._sharing.close()


def stopped_by(obstacle: Obstacle) -> list[PartitionStatus]:
    """The partitions that an obstacle keeps from being mirrored."""
    way = obstacle.way
    return [
        PartitionStatus(
            topic=way.topic,
            target_topic=way.target_topic,
            partition=index,
            state=PartitionState.STOPPED,
            trouble=obstacle.trouble,
            error=obstacle.reason,
        )
        for index in range(way.partitions)
    ]
