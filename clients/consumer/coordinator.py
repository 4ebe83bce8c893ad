"""What a consumer does beside fetching: membership of its group, positions, commits.

It runs in background tasks, which a poll starts when they are due, so that a poll keeps to its own
time-out.
"""

import asyncio
import logging
import time
from collections.abc import Mapping

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.backoff import Backoff

from ..committed import NO_MEMBER, Membership, fetch_committed
from ..errors import NoOffset
from ..group.commits import Commits
from ..group.early_end import EarlyEnd
from ..group.options import GroupOptions
from ..group.rebalance import Rebalance
from ..group.reconciliation import Reconciliation
from ..group.state import Phase
from ..group.topics import SubscribedTopics, TopicSelection
from ..net.cluster import Cluster
from ..offsets import list_offsets
from ..types import NO_ID, OffsetAndMetadata, TopicPartition
from .assignment import Assignment
from .fetch_responses import RESETS
from .options import ConsumerOptions
from .recreation import RecreatedTopics

_log = logging.getLogger(__name__)

_REFRESH_INTERVAL = 10.0
"""Seconds between checks for new topics and partitions of a subscription."""
_MISSING_INTERVAL = 1.0
"""Seconds between looks for subscribed topics that do not exist yet."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ConsumerCoordinator:
    """Keeps an assignment readable: its partitions and their positions."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        options: ConsumerOptions,
        group: GroupOptions | None,
        changed: asyncio.Event,
        recreated: RecreatedTopics,
    ) -> None:
        self._cluster = cluster
        self._recreated = recreated
        self._assignment = assignment
        self._options = options
        self._group = group
        self._changed = changed
        self._wanted: SubscribedTopics | None = None
        self._rebalance: Rebalance | Reconciliation | None = None
        self._commits = Commits(cluster, group.group, None) if group is not None else None
        self._task: asyncio.Task[None] | None = None
        self._failure: QbusError | None = None
        self._backoff = Backoff()
        self._refresh_at = 0.0
        self._commit_at = time.monotonic() + (options.auto_commit or 0)
        name = "" if group is None else group.group
        self._early_end = EarlyEnd(f"group {name}", options.consumer_timeout)

    @property
    def membership(self) -> Membership:
        """The member and generation that commits are made as."""
        return self._rebalance.state.membership if self._rebalance is not None else NO_MEMBER

    def timed_out(self) -> None:
        """Iterating ended: log so if the group had not assigned partitions by then."""
        if self._rebalance is not None and self._rebalance.state.phase is not Phase.STABLE:
            self._early_end.log()

    # Subscription.

    def subscribe(self, topics: TopicSelection) -> None:
        """Read whole topics, or the group's share of them: names, or a pattern."""
        self._wanted = SubscribedTopics(self._cluster, topics)
        self._refresh_at = 0.0
        if self._rebalance is None:
            self._assignment.replace(())
        if self._group is None:
            return
        if self._rebalance is None:
            member = Reconciliation if self._group.protocol == "consumer" else Rebalance
            self._rebalance = member(
                self._cluster,
                self._group,
                self._assignment,
                self._changed,
                auto_commit=self._options.auto_commit is not None,
            )
        self._rebalance.subscribe(self._wanted)

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing; raise what callbacks raise."""
        try:
            if self._rebalance is not None:
                await self._rebalance.close(may_commit=self._options.auto_commit is not None)
        finally:
            self._rebalance, self._wanted = None, None
            self._assignment.replace(())

    def check_not_subscribed(self) -> None:
        """Raise :class:`~qbus.errors.QbusError` when partitions come from a subscription."""
        if self._wanted is not None:
            raise QbusError("the consumer is subscribed to topics; partitions cannot be assigned")

    # Commits.

    def commit(self, offsets: Offsets) -> asyncio.Future[None]:
        """Commit ``offsets`` after all earlier commits; the future need not be awaited.

        It fails with :class:`~qbus.errors.ApiError` ILLEGAL_GENERATION for partitions that this
        member does not have, because it would set back the commits of the member that has them.
        """
        assert self._commits is not None, "there is no group to commit in"
        commits = self._commits
        if self._rebalance is not None:
            commits = self._rebalance.commits
            ours = self._assignment.states
            foreign = [partition for partition in offsets if partition not in ours]
            if foreign:
                topic, index = foreign[0]
                refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                refused.set_exception(
                    ApiError(ErrorCode.ILLEGAL_GENERATION, f"{topic}-{index} is not assigned to us")
                )
                refused.exception()  # the caller need not await it
                return refused
        offsets = self._assignment.with_ids(offsets)
        done = commits.submit(offsets)
        done.add_done_callback(lambda done: self._commit_ended(done, offsets))
        return done

    def _commit_ended(self, done: asyncio.Future[None], offsets: Offsets) -> None:
        if not done.cancelled() and done.exception() is None:
            self._assignment.committed(offsets)

    def _commit_automatically(self) -> None:
        """Commit what earlier polls returned, if it is due."""
        if self._options.auto_commit is None or time.monotonic() < self._commit_at:
            return
        rebalance = self._rebalance
        if rebalance is not None and rebalance.state.phase is not Phase.STABLE:
            return  # later, when the assignment is known
        self._commit_at = time.monotonic() + self._options.auto_commit
        offsets = self._assignment.to_commit()
        if offsets and self._group is not None:
            self.commit(offsets).add_done_callback(_warn)

    # Running.

    async def run(self) -> None:
        """Do what a poll has to do, and start background work that is due.

        Raises what ended the last background work, and what callbacks raise.
        """
        if self._rebalance is not None:
            await self._rebalance.poll()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._commit_automatically()
        if self._task is None and self._is_due():
            self._task = asyncio.create_task(self._work())

    async def close(self, may_commit: bool) -> None:
        """Commit what polls returned, if wanted, and leave the group.

        Raises what callbacks raise.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        may_commit = may_commit and self._options.auto_commit is not None
        if self._rebalance is not None:
            await self._rebalance.close(may_commit=may_commit)
        elif self._commits is not None:
            offsets = self._assignment.to_commit()
            if may_commit and offsets:
                self.commit(offsets).add_done_callback(_warn)
            await self._commits.drain()

    def _is_due(self) -> bool:
        is_refresh_due = self._wanted is not None and time.monotonic() >= self._refresh_at
        return is_refresh_due or bool(self._assignment.without_position())

    async def _work(self) -> None:
        try:
            if self._wanted is not None and time.monotonic() >= self._refresh_at:
                await self._refresh()
            await self._find_positions()
            self._backoff.succeeded()
        except QbusError as error:
            if isinstance(error, ApiError) and error.retriable:
                await asyncio.sleep(self._backoff.failed())
            else:
                self._failure = error
        finally:
            self._task = None
            self._changed.set()

    async def _refresh(self) -> None:
        """Check what has become of the subscribed topics."""
        assert self._wanted is not None
        if self._rebalance is not None:
            await self._rebalance.check_topics()
        else:
            await self._wanted.refresh()
            counts = self._wanted.counts()
            self._assignment.add(
                TopicPartition(topic, index)
                for topic, count in counts.items()
                for index in range(count)
            )
            names = frozenset(self._wanted.names)
            self._assignment.remove(
                [partition for partition in self._assignment if partition.topic not in names]
            )
        known = self._cluster.metadata.topics
        is_complete = all(name in known for name in self._wanted.names)
        interval = _REFRESH_INTERVAL if is_complete else _MISSING_INTERVAL
        self._refresh_at = time.monotonic() + interval

    async def _find_positions(self) -> None:
        await self._cluster.need({key.topic for key in self._assignment.without_position()})
        states = self._assignment.states
        for partition in self._assignment.without_position():
            self._recreated.check(partition, states[partition])
        missing = self._assignment.without_position()
        asked = {key: (states[key], at, states[key].topic_id) for key, at in missing.items()}

        def is_wanted(partition: TopicPartition) -> bool:
            """Whether neither partition nor topic was in between, nor the user sought elsewhere."""
            state = self._assignment.states.get(partition)
            if state is None:
                return False
            return (state, state.reset_to, state.topic_id) == asked[partition]

        unset = [partition for partition, reset_to in missing.items() if reset_to is None]
        if self._group is not None and unset:
            ids = {key.topic: states[key].topic_id or NO_ID for key in unset}
            committed = await fetch_committed(self._cluster, self._group.group, unset, ids)
            for partition, offset in committed.items():
                missing.pop(partition, None)
                if is_wanted(partition):
                    self._assignment.found(
                        partition, offset.offset, committed=True, epoch=offset.leader_epoch
                    )
        times = {
            partition: self._default(partition) if reset_to is None else reset_to
            for partition, reset_to in missing.items()
        }
        if times:
            found = await list_offsets(self._cluster, times, committed=self._options.read_committed)
            for partition, at in found.items():
                if is_wanted(partition):
                    self._assignment.found(partition, at.offset, committed=False)

    def _default(self, partition: TopicPartition) -> int:
        reset_to = RESETS.get(self._options.offset_reset)
        if reset_to is None:
            topic, index = partition
            raise NoOffset(f"{topic}-{index} has no committed offset, and no offset_reset")
        return reset_to


def _warn(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        # The next commit covers it, or another member has the partitions.
        _log.warning("cannot commit offsets: %s", error)
