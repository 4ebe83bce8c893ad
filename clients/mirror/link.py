"""One link of a mirror: a source, a target, and the topics copied from the one to the other.

::

    discovery ---> the topics that this link writes ---> the group divides their partitions
                                                                  |
      resolver: where each goes on <------------------------------+
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

from qbus.errors import ApiError, CorruptBatch, ErrorCode, QbusError

from ..admin import Admin
from ..net.cluster import Cluster
from ..types import TopicPartition
from .chunks import Chunk
from .config import LinkConfig
from .discovery import Discovery
from .membership import LinkMembership
from .partitions import MirroredPartition, Phase
from .reader import Reader
from .routes import Obstacle
from .start_offsets import StartOffsetResolver
from .status import LinkStatus, PartitionState, PartitionStatus, Trouble
from .topics import TargetTopics
from .writer import Writer

_log = logging.getLogger(__name__)

_TICK = 0.1
_SOONEST, _SOON = 0.1, 1.0
"""The shortest and the longest time until discovery goes on with what it began, in seconds."""
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class MirrorLink:
    """Copies what ``config`` selects from ``source`` to ``target``, until it is cancelled.

    It keeps no state: a partition goes on where the target's log ends. Several processes may run
    the same link: they divide its partitions, and take over those of a process that is gone.
    """

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        """The clusters' owner closes them after :meth:`run`."""
        self._config = config
        self._target = target
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self._draining: set[MirroredPartition] = set()
        self._drained = asyncio.Event()
        self._records = self._bytes = 0
        self._to_resolve = asyncio.Event()
        self._to_discover = asyncio.Event()
        self._resolver = StartOffsetResolver(source, target)
        self._reader = Reader(source, config, self, self._spawn)
        self._writer = Writer(target, config, self, self._spawn)
        admin = TargetTopics(config, Admin.over(target), lambda: len(target.metadata.nodes))
        self._discovery = Discovery(config, source, target, admin)
        self._membership = LinkMembership(target, config, self._reconcile, self._release)
        self._tasks: asyncio.TaskGroup | None = None
        self._spawned: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Mirror until cancelled; then drain what was sent, and leave the group.

        Transient errors are retried without end, and shown by :meth:`status` meanwhile. Raises
        :class:`~qbus.errors.QbusError` for others, such as a refused group.
        """
        failure: QbusError | None = None
        async with asyncio.TaskGroup() as self._tasks:
            background = [
                self._tasks.create_task(self._discover()),
                self._tasks.create_task(self._resolve()),
            ]
            try:
                await self._membership.run()
            except QbusError as error:
                failure = error
            finally:
                for task in background:
                    task.cancel()
                await self._leave()
        if failure is not None:
            raise failure

    def status(self) -> LinkStatus:
        """Return the status, with every partition that this process copies or should copy."""
        config, now_ms = self._config, int(time.time() * 1000)
        partitions = [mirrored.status(now_ms) for _, mirrored in sorted(self._partitions.items())]
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

    # Events of partitions: called by the reader and the writer.

    @property
    def held_bytes(self) -> int:
        """Bytes that were fetched and are still in memory."""
        return self._writer.held_bytes

    def arrived(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        """Send a chunk that was fetched."""
        self._writer.send(mirrored, chunk)

    def acknowledged(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        """Count a chunk that the target has stored."""
        mirrored.acknowledged(chunk)
        self._records += chunk.records_count
        self._bytes += len(chunk.records)

    def completed(self, mirrored: MirroredPartition) -> None:
        """Go on with a partition after a request: resolve its start offset, or fetch more."""
        self._reader.wake()
        if mirrored.sent == 0:
            self._draining.discard(mirrored)
            self._drained.set()
            if mirrored.phase is Phase.RESOLVING:
                self._to_resolve.set()

    def failed(self, mirrored: MirroredPartition, error: QbusError) -> None:
        """Retry a partition that cannot be fetched, or sent, for now."""
        level = logging.ERROR if isinstance(error, CorruptBatch) else logging.INFO
        _log.log(level, "%s: %s-%s: %s", self._config.name, *mirrored.source, error)
        mirrored.failed(error, time.monotonic())
        if isinstance(error, ApiError) and error.code in _GONE:
            self._to_discover.set()

    def refused(self, mirrored: MirroredPartition, error: QbusError) -> None:
        """Stop or retry a partition that the target refuses."""
        self._reader.stop(mirrored)
        code = error.code if isinstance(error, ApiError) else None
        if code is ErrorCode.INVALID_RECORD:
            self._stop(mirrored, Trouble.SOURCE_LOST_DATA, str(error))
        elif code in {ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION}:
            self._stop(mirrored, Trouble.UNRELATED_TOPIC, str(error))
        else:
            self.failed(mirrored, error)

    def out_of_range(self, mirrored: MirroredPartition) -> None:
        """Resolve the start offset again: the source no longer has the one that was fetched."""
        mirrored.overtaken()
        self._to_resolve.set()

    def _stop(self, mirrored: MirroredPartition, trouble: Trouble, reason: str) -> None:
        _log.error("%s: %s-%s is stopped: %s", self._config.name, *mirrored.source, reason)
        mirrored.stop(trouble, reason)

    # Tasks.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def _discover(self) -> None:
        """Discover topics at intervals, and soon after one seems to be new or gone."""
        interval = self._config.topics_at_target.discovery_interval_ms / 1000
        soon = _SOONEST
        while True:
            self._to_discover.clear()
            is_complete = await self._discovery.discover()
            self._membership.subscribe(self._discovery.routes)
            self._reconcile()
            if is_complete:
                soon = _SOONEST
                await self._discovery.until_news(interval, self._to_discover)
            else:  # what was made at the target is there soon
                await asyncio.sleep(min(interval, soon))
                soon = min(2 * soon, _SOON)

    async def _resolve(self) -> None:
        """Resolve the start offsets of partitions, as they need it."""
        while True:
            now = time.monotonic()
            due = [
                mirrored for mirrored in self._partitions.values() if mirrored.may_be_resolved(now)
            ]
            if due:
                await self._resolve_these(due)
                continue
            waits = any(mirrored.phase is Phase.RESOLVING for mirrored in self._partitions.values())
            self._to_resolve.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK if waits else None):
                    await self._to_resolve.wait()

    async def _resolve_these(self, partitions: list[MirroredPartition]) -> None:
        for mirrored, outcome in (await self._resolver.resolve(partitions)).items():
            if (
                self._partitions.get(mirrored.target) is not mirrored
                or mirrored.phase is not Phase.RESOLVING
            ):
                continue
            if isinstance(outcome, ApiError):
                self.failed(mirrored, outcome)
                continue
            start, bounds = outcome
            if start.reason not in {None, mirrored.error}:
                _log.error("%s: %s-%s: %s", self._config.name, *mirrored.source, start.reason)
            if mirrored.resolved(start, bounds):
                self._reader.start(mirrored)

    def _reconcile(self) -> None:
        """Copy exactly the partitions that the routes and the group give to this process."""
        routes = self._discovery.routes
        wanted = {
            partition
            for partition in self._membership.owned.active
            if partition.topic in routes
            and partition.partition < routes[partition.topic].partitions
        }
        for partition, mirrored in list(self._partitions.items()):
            is_same = (
                partition in wanted
                and mirrored.provenance == routes[partition.topic].provenance
                and mirrored.source_id == self._discovery.source_id(mirrored.source.topic)
                and mirrored.target_id == self._discovery.target_id(partition.topic)
            )
            if not is_same:
                self._forget(mirrored)
        for mirrored in self._partitions.values():
            mirrored.recheck()
        for partition in sorted(wanted - self._partitions.keys()):
            route = routes[partition.topic]
            self._partitions[partition] = MirroredPartition(
                TopicPartition(route.topic, partition.partition),
                partition,
                route.provenance,
                self._discovery.source_id(route.topic),
                self._discovery.target_id(partition.topic),
            )
        self._to_resolve.set()

    def _forget(self, mirrored: MirroredPartition) -> None:
        del self._partitions[mirrored.target]
        self._reader.stop(mirrored)
        mirrored.release()
        if mirrored.sent:
            self._draining.add(mirrored)

    async def _release(self) -> None:
        """Return when nothing of the partitions given up is in flight to the target."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.transfer.drain_timeout_ms / 1000):
                while self._draining:
                    self._drained.clear()
                    await self._drained.wait()

    async def _leave(self) -> None:
        self._reader.close()
        await self._writer.drain(self._config.transfer.drain_timeout_ms / 1000)
        for task in self._spawned:
            task.cancel()
        await self._membership.close()


def stopped_by(obstacle: Obstacle) -> list[PartitionStatus]:
    """Return the status of the partitions that an obstacle keeps from being mirrored."""
    route = obstacle.route
    return [
        PartitionStatus(
            topic=route.topic,
            target_topic=route.target_topic,
            partition=index,
            state=PartitionState.STOPPED,
            trouble=obstacle.trouble,
            error=obstacle.reason,
        )
        for index in range(route.partitions)
    ]
