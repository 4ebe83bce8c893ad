"""What the driver asks the cluster: which partitions exist, and their bounds."""

import asyncio
import logging
from collections.abc import Iterable
from uuid import UUID

from qbus.errors import ApiError, ErrorCode

from ...errors import PartialFailure
from ...group.commits import Commits
from ...net.metadata import unknown_topic
from ...net.retry import retrying
from ...offsets import list_offsets
from ...types import (
    EARLIEST,
    LATEST,
    NO_ID,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from ..connections import connections
from .loss import PartitionLog, PartitionLogs
from .offsets import Marks, QueryOffsets
from .options import SourceOptions
from .positions import ChosenPositions
from .watch import Watch

_log = logging.getLogger(__name__)

_COMMIT_SECONDS = 1.0
"""How long a query waits for its offset commit, which it does not depend on."""


class Driver:
    """The connection of a query's driver to the cluster.

    Every method raises :class:`~qbus.clients.spark.errors.NotReached`, and brokers' errors.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connections = connections(options.fetch.cluster)
        self._cluster = self._connections.cluster
        self._watch: Watch | None = None
        self._commits: Commits | None = None

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """The partitions to read, with their current bounds."""
        return self._connections.ask(self._logs())

    def resolve(self, chosen: ChosenPositions, logs: PartitionLogs) -> dict[TopicPartition, int]:
        """The offsets of ``chosen`` positions.

        Raises :class:`~qbus.clients.spark.options.OptionError` if a position has no offset.
        """
        times = chosen.look_up(logs)
        ends = {where: log.end for where, log in logs.items()}
        known = {EARLIEST: {where: log.start for where, log in logs.items()}, LATEST: ends}
        found = {
            where: OffsetAndTimestamp(known[time][where], -1)
            for where, time in times.items()
            if time in known
        }
        others = {where: time for where, time in times.items() if time not in known}
        found |= self._connections.ask(list_offsets(self._cluster, others))
        return chosen.resolve(logs, found, ends)

    def check_all_there(self, logs: PartitionLogs) -> None:
        """Raise for topics and partitions that are named in the options but do not exist."""
        subscription, metadata = self._options.subscription, self._cluster.metadata
        for name in subscription.names or ():
            if name not in metadata.topics:
                error = metadata.errors.get(name) or unknown_topic(name)
                raise ApiError(error.code, f"{error}: create the topic first, or check its name")
        for topic, index in sorted((subscription.partitions or frozenset()) - logs.keys()):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has no partition {index}: check the option assign",
            )

    def wait(self, ends: Marks) -> None:
        """Wait for records at or after ``ends``, for at most ``idle_wait`` seconds."""
        self._connections.ask(self._wait(ends))

    def commit(self, group: str, reached: QueryOffsets) -> None:
        """Commit a query's offsets for monitoring; a failure is only logged.

        Those in a topic that was deleted are refused, if another one has its name now.
        """

        async def submit() -> None:
            if self._commits is None:
                self._commits = Commits(self._cluster, group, None)
            done = self._commits.submit(to_commit(reached))
            done.add_done_callback(lambda done: _warn(group, done))
            await asyncio.wait([done], timeout=_COMMIT_SECONDS)

        self._connections.run(submit())

    def close(self) -> None:
        """Stop requests; the connections stay open for other queries."""
        if self._watch is not None and not self._connections.thread.is_closed:
            self._connections.run(self._watch.close())
        self._watch = None

    async def _logs(self) -> dict[TopicPartition, PartitionLog]:
        partitions = await self._partitions()
        starts, ends = await asyncio.gather(
            self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST)
        )
        topics = self._cluster.metadata.topics
        return {
            where: PartitionLog(str(topics[where.topic].topic_id), starts[where], ends[where])
            for where in partitions
            if where in starts and where in ends and where.topic in topics
        }

    async def _partitions(self) -> list[TopicPartition]:
        subscription, metadata = self._options.subscription, self._cluster.metadata

        async def refresh() -> None:
            await self._cluster.refresh(subscription.names)
            for name, error in metadata.errors.items():
                if subscription.wants(name) and not _is_gone(error):
                    raise error

        await retrying(self._cluster, "the topics", refresh)
        return subscription.select(list(metadata.topics.values()))

    async def _offsets(
        self, partitions: Iterable[TopicPartition], time: int
    ) -> dict[TopicPartition, int]:
        """The offsets of the partitions that still exist."""
        committed = self._options.fetch.read_committed
        try:
            times = dict.fromkeys(partitions, time)
            found = await list_offsets(self._cluster, times, committed=committed)
        except PartialFailure as failure:
            if not all(_is_gone(error) for error in failure.errors.values()):
                raise
            found = dict(failure.results)
        except ApiError as error:
            if not _is_gone(error):
                raise
            found = {}
        return {where: at.offset for where, at in found.items()}

    async def _wait(self, ends: Marks) -> None:
        if self._watch is None:
            options = self._options
            self._watch = Watch(
                self._cluster, options.idle_wait, committed=options.fetch.read_committed
            )
        await self._watch.wait(ends)


def to_commit(reached: QueryOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of a query, each with the id of its topic."""
    ids = {topic: UUID(topic_id) for topic, topic_id in reached.ids.items()}
    known = {topic: topic_id for topic, topic_id in ids.items() if topic_id != NO_ID}
    return {
        where: OffsetAndMetadata(at, topic_id=known.get(where.topic))
        for where, at in reached.positions.items()
    }


def _warn(group: str, done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _log.warning("cannot commit the offsets of the query to group %s: %s", group, error)


def _is_gone(error: ApiError) -> bool:
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
