"""A member's part in the rebalances of its group, from the first join to the last.

::

    give up what may go to others: stop it, commit it, call back    (eager: everything)
    join, and wait for the assignment
    cooperative: give up what is not assigned again, and if there was any, join once more
    read new partitions, call back

The rebalance runs in the background, so that a poll keeps to its time-out and goes on reading what
stays. Partitions come and go, and callbacks run, only inside a poll (see ``poll_executor``).
"""

import asyncio
import logging

from qbus.errors import ApiError, QbusError
from qbus.service.backoff import Backoff

from ..net.cluster import Cluster
from ..types import TopicPartition
from .commits import Commits
from .handover import Handover, Partitions
from .heartbeats import Heartbeats
from .member import Member
from .options import GroupOptions
from .poll_executor import PollExecutor
from .state import MemberState, Phase, Remedy
from .topics import GroupTopics, SubscribedTopics

_log = logging.getLogger(__name__)

_AT_ONCE = 3
"""Attempts to join without a delay: a member id, or another rebalance, costs one each."""


class Rebalance:
    """Keeps ``partitions`` equal to what the group assigns to this member."""

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions,
        partitions: Partitions,
        changed: asyncio.Event,
        *,
        auto_commit: bool,
    ) -> None:
        self.state = MemberState(options.instance_id)
        self.commits = Commits(cluster, options.group, self.state)
        self.topics = GroupTopics(cluster, options.rack)
        self._options = options
        self._partitions = partitions
        self._changed = changed
        self._member = Member(cluster, options, self.state, self.topics.lead)
        self._heartbeats = Heartbeats(cluster, options, self._member, self.state, changed)
        self._executor = PollExecutor(changed)
        self._handover = Handover(
            options, partitions, self.commits, self.state, self._executor, auto_commit=auto_commit
        )
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, wanted: SubscribedTopics) -> None:
        """Change the topics; the next poll tells the group."""
        self.topics.subscribe(wanted)
        self.state.request_rejoin("subscription has changed")

    async def poll(self) -> None:
        """Do what a poll has to do; raise what ended the membership, or what a callback raises."""
        self._heartbeats.polled()
        if self.state.failure is not None:
            await self._stop()
            await self._handover.release_all()
            raise self.state.failure
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
        if self._task is None and self.state.rejoin_reason is not None:
            self._task = asyncio.create_task(self._rebalance())
            await asyncio.sleep(0)
        await self._executor.run_pending()

    async def close(self, *, may_commit: bool) -> None:
        """Commit what was read, if wanted, call back, and leave.

        Raises what callbacks raise.
        """
        await self._stop()
        try:
            await self._handover.finish(may_commit=may_commit)
        finally:
            await self._heartbeats.stop()
            await self.commits.close()
            try:
                await self._member.leave("the consumer is being closed")
            except QbusError as error:
                _log.warning("cannot leave group %s properly: %s", self._options.group, error)

    async def check_topics(self) -> None:
        """Check what has become of the topics; raise :class:`~qbus.errors.ApiError`."""
        await self.topics.refresh()
        reason = self.topics.reason_to_rejoin()
        if reason is not None and self.state.phase is Phase.STABLE:
            self.state.request_rejoin(reason)

    async def _stop(self) -> None:
        """Cancel the rebalance under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # The steps of a rebalance.

    async def _rebalance(self) -> None:
        backoff, attempts = Backoff(), 0
        while self.state.rejoin_reason is not None:
            result = await self._try_to_join()
            if result is None:
                continue  # the place was lost meanwhile
            if not isinstance(result, Remedy):
                self._heartbeats.start()
                await self._take_over(frozenset(result))
                backoff, attempts = Backoff(), 0
                continue
            attempts += 1
            if result in {Remedy.RETRY, Remedy.MOVED} or attempts > _AT_ONCE:
                await asyncio.sleep(backoff.failed())
        self._changed.set()

    async def _try_to_join(self) -> tuple[TopicPartition, ...] | Remedy | None:
        """Return the assignment, or what to do first; None: start again."""
        result: tuple[TopicPartition, ...] | Remedy = Remedy.FAIL
        try:
            await self.topics.refresh()  # first, to know what a pattern matches
            await self._handover.give_up(self._not_kept)
            if self._not_kept():
                return None
            result = await self._member.join(self.topics.join(), self._partitions)
        except ApiError as error:
            if not error.retriable:
                raise
            result = Remedy.RETRY
        finally:
            if isinstance(result, Remedy):
                self.state.request_rejoin(f"joining failed: {result.value}")
        return result

    def _not_kept(self) -> list[TopicPartition]:
        """Return the partitions to give up before joining."""
        if self.state.is_lost or not self._options.is_cooperative:
            return list(self._partitions)
        wanted = frozenset(self.topics.names)
        return [partition for partition in self._partitions if partition.topic not in wanted]

    async def _take_over(self, assigned: frozenset[TopicPartition]) -> None:
        """Read what was assigned, and nothing else."""
        place = self.state.membership
        if not assigned.issuperset(self._partitions):
            await self._handover.give_up(
                lambda: [key for key in self._partitions if key not in assigned]
            )
            self.state.request_rejoin("partitions were revoked")  # so that others get them

        async def receive() -> None:
            if self.state.membership != place:
                return
            wanted = frozenset(self.topics.names)
            added = assigned.difference(self._partitions)
            added = frozenset(partition for partition in added if partition.topic in wanted)
            self._partitions.add(added)
            await self._options.callbacks.assigned(added)

        await self._executor.run_in_poll(receive)
