"""What a consumer does beside fetching: group membership, positions, commits, metadata.

It all happens in one background task at a time, which a poll starts when something is due, so that
a poll keeps to its own time-out.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

from qbus.errors import ApiError, QbusError

from ..cluster import Cluster
from ..committed import NO_MEMBER, Membership, commit, fetch_committed
from ..errors import NoOffset
from ..offsets import list_offsets
from ..retry import backoff
from ..types import OffsetAndMetadata, TopicPartition
from .assignment import Assignment
from .fetcher import RESETS
from .member import Member
from .options import ConsumerOptions, GroupOptions

_log = logging.getLogger(__name__)

_REFRESH_INTERVAL = 10.0
"""Seconds between looks for new topics and partitions of a subscription."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Upkeep:
    """Keeps an assignment readable: partitions in it, positions for them, leaders known."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        options: ConsumerOptions,
        group: GroupOptions | None,
        changed: asyncio.Event,
    ) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._options = options
        self._group = group
        self._changed = changed
        self._topics: tuple[str, ...] = ()
        self._member: Member | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: QbusError | None = None
        self._delays = backoff()
        self._refresh_at = 0.0
        self._commit_at = time.monotonic() + (options.auto_commit or 0)

    @property
    def membership(self) -> Membership:
        """What a commit has to prove."""
        return self._member.membership if self._member is not None else NO_MEMBER

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read whole topics, or the group's share of them."""
        self._topics = tuple(sorted(set(topics)))
        self._refresh_at = 0.0
        if self._group is None:
            self._assignment.replace(())
        elif self._member is None:
            self._member = Member(self._cluster, self._group, self._changed)
        else:
            self._member.needs_join = True

    def check_not_subscribed(self) -> None:
        """Raise :class:`~qbus.errors.QbusError` when partitions come from a subscription."""
        if self._topics:
            raise QbusError("the consumer is subscribed to topics; partitions cannot be assigned")

    def commit_refused(self, error: ApiError) -> None:
        """A commit failed, which may mean that the group goes on without us."""
        if self._member is not None:
            self._member.refused(error.code)

    def run(self) -> None:
        """Start what is due; raises what stopped the last of it."""
        self._raise_failure()
        if self._task is not None or not self._is_due():
            return
        is_joining = self._member is not None and self._member.needs_join
        offsets: Offsets = {}
        if self._options.auto_commit is not None and (is_joining or self._is_commit_due()):
            offsets = self._assignment.to_commit()
        if is_joining:  # from here on no poll returns what may be another member's
            self._assignment.replace(())
        self._task = asyncio.create_task(self._work(offsets))

    async def close(self, may_commit: bool) -> None:
        """Commit what polls have returned, if wanted, and leave the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            if may_commit and self._options.auto_commit is not None:
                await self._commit(self._assignment.to_commit())
            if self._member is not None:
                await self._member.leave()
        except QbusError as error:
            _log.warning("not left the group properly: %s", error)

    def _raise_failure(self) -> None:
        if self._member is not None and self._member.failure is not None:
            raise self._member.failure
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _is_due(self) -> bool:
        return (
            (self._member is not None and self._member.needs_join)
            or (bool(self._topics) and time.monotonic() >= self._refresh_at)
            or self._is_commit_due()
            or bool(self._assignment.without_position())
            or bool(self._cluster.metadata.missing(self._assignment.topics))
        )

    def _is_commit_due(self) -> bool:
        return self._options.auto_commit is not None and time.monotonic() >= self._commit_at

    async def _work(self, offsets: Offsets) -> None:
        try:
            await self._commit(offsets)
            if self._member is not None and self._member.needs_join:
                self._assignment.replace(await self._member.join(self._topics))
            if self._topics and time.monotonic() >= self._refresh_at:
                await self._refresh()
            await self._cluster.need(self._assignment.topics)
            await self._find_positions()
            self._delays = backoff()
        except QbusError as error:
            if isinstance(error, ApiError) and error.retriable:
                await asyncio.sleep(next(self._delays))
            else:
                self._failure = error
        finally:
            self._task = None
            self._changed.set()

    async def _commit(self, offsets: Offsets) -> None:
        if self._options.auto_commit is not None:
            self._commit_at = time.monotonic() + self._options.auto_commit
        if not offsets or self._group is None:
            return
        try:
            await commit(self._cluster, self._group.group, offsets, self.membership)
            self._assignment.committed(offsets)
        except ApiError as error:
            # The partitions go to another member, or the next commit covers this one.
            _log.warning("offsets not committed in group %s: %s", self._group.group, error)
            self.commit_refused(error)

    async def _refresh(self) -> None:
        """See what has become of the subscribed topics."""
        await self._cluster.refresh(self._topics)
        self._refresh_at = time.monotonic() + _REFRESH_INTERVAL
        counts = self._cluster.metadata.partition_counts(self._topics)
        if self._member is None:
            self._assignment.add(
                TopicPartition(topic, index)
                for topic, count in counts.items()
                for index in range(count)
            )
        elif self._member.assigned_counts is not None and counts != self._member.assigned_counts:
            self._member.needs_join = True

    async def _find_positions(self) -> None:
        missing = self._assignment.without_position()
        unset = [partition for partition, reset_to in missing.items() if reset_to is None]
        if self._group is not None and unset:
            committed = await fetch_committed(self._cluster, self._group.group, unset)
            for partition, offset in committed.items():
                self._assignment.found(partition, offset.offset, committed=True)
                missing.pop(partition, None)
        times = {
            partition: self._default(partition) if reset_to is None else reset_to
            for partition, reset_to in missing.items()
        }
        if times:
            for partition, at in (await list_offsets(self._cluster, times)).items():
                self._assignment.found(partition, at.offset, committed=False)

    def _default(self, partition: TopicPartition) -> int:
        reset_to = RESETS.get(self._options.offset_reset)
        if reset_to is None:
            topic, index = partition
            raise NoOffset(f"nothing says where to begin in {topic}-{index}")
        return reset_to
