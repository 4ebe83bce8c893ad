"""A member of a group of the consumer protocol (KIP-848): the broker assigns the partitions.

Heartbeats say what changed, and their answers bring the member's epoch and, when it changed, what
it is to have. The member goes there in its own time::

    give up what is not its any more: stop it, commit it, call back
    read what is new, call back
    acknowledge with the next heartbeat

Others get a partition only when the member acknowledged that it gave it up, and nobody waits for
anybody else. As in the classic protocol, partitions come and go, and callbacks run, only inside a
poll (see ``poll_executor``). A partition is read as long as the list that heartbeats carry has it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from uuid import uuid4

from qbus.errors import ApiError, ErrorCode, QbusError, WireError
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from ..errors import check
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup
from ..net.routing import COORDINATOR_MOVED
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .epochs import LEAVING, LEAVING_FOR_A_WHILE, EpochCommits, EpochState
from .handover import Handover, Partitions
from .options import GroupOptions
from .poll_executor import PollExecutor
from .topics import SubscribedTopics

_log = logging.getLogger(__name__)

_INTERVAL = 5.0
"""Seconds between heartbeats, until the coordinator says."""
_UNRESOLVED_INTERVAL = 0.2
"""Seconds until topics are looked up again that the broker assigned and that are not known here."""
_EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Reconciliation:
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
        self._cluster = cluster
        self._options = options
        self._partitions = partitions
        self._changed = changed
        self._soon = asyncio.Event()  # a heartbeat is due
        self.state = EpochState(str(uuid4()), options.instance_id)
        self.commits = EpochCommits(cluster, options.group, self.state, self._soon)
        self._executor = PollExecutor(changed)
        self._handover = Handover(
            options, partitions, self.commits, self.state, self._executor, auto_commit=auto_commit
        )
        self._wanted: SubscribedTopics | None = None
        self._told_names: tuple[str, ...] | None = None
        self._ids: dict[str, bytes] = {}  # of the topics of the partitions that it has
        self._target: Assignment | None = None  # what it is to have, unless it has that
        self._leaving: frozenset[TopicPartition] = frozenset()  # commits of them may be under way
        self._acknowledges = False
        self._must_tell = True  # everything, as an answer may be lost
        self._is_closing = False
        self._interval = _INTERVAL
        self._polled_at = 0.0
        self._backoff = Backoff()
        self._beating: asyncio.Task[None] | None = None
        self._reconciling: asyncio.Task[None] | None = None

    def subscribe(self, wanted: SubscribedTopics) -> None:
        """Change the topics; the next heartbeat tells the group."""
        self._wanted = wanted
        self._soon.set()

    async def poll(self) -> None:
        """Do what a poll has to do; raise what ended the membership, or what a callback raises."""
        self._polled_at = _now()
        if self.state.failure is not None:
            await self._stop()
            await self._handover.release_all()
            raise self.state.failure
        if self._reconciling is not None and self._reconciling.done():
            task, self._reconciling = self._reconciling, None
            task.result()
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())
            await asyncio.sleep(0)
        await self._executor.run_pending()

    async def close(self, *, may_commit: bool) -> None:
        """Commit what was read, if wanted, call back, and leave.

        Raises what callbacks raise.
        """
        self._is_closing = True
        await self._stop_reconciling()
        self._leaving = self._leaving.union(self._partitions)
        try:
            # Heartbeats go on, which bring the epoch that the last commits need.
            await self._handover.finish(may_commit=may_commit)
        finally:
            await self._stop()
            await self.commits.close()
            await self._leave()

    async def check_topics(self) -> None:
        """Check what has become of the topics; raise :class:`~qbus.errors.ApiError`."""
        if self._wanted is not None:
            await self._wanted.refresh()
            if self._told_names is not None and self._told_names != self._wanted.names:
                self._soon.set()

    async def _stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
        await self._stop_reconciling()

    async def _stop_reconciling(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
            self._reconciling = None

    # Heartbeats

    async def _beat(self) -> None:
        """Send heartbeats until the member cannot continue, or is not polled any more."""
        while self.state.failure is None:
            if _now() - self._polled_at > self._options.max_poll_interval:
                _log.warning(
                    "no poll within %s s: leaving group %s",
                    self._options.max_poll_interval,
                    self._options.group,
                )
                await self._leave()
                await self._give_up_all()
                return
            self._soon.clear()
            pause = await self._try_to_beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
        self._changed.set()

    async def _try_to_beat(self) -> float:
        """Send a heartbeat; return the seconds until the next."""
        try:
            if self.state.is_expelled:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "a commit was refused")
            await self._beat_once()
            self._backoff.succeeded()
        except ApiError as error:
            return await self._refused(error)
        except WireError as error:
            _log.warning("group %s: %s", self._options.group, error)
            self._cluster.forget_coordinator(self._options.group)
            self._must_tell = True
            return self._backoff.failed()
        return self._interval

    async def _beat_once(self) -> None:
        if self._wanted is None:
            return
        if self._told_names is None:
            await self._wanted.refresh()  # first, to know what a pattern matches
        names = self._wanted.names
        tells, self._acknowledges = self._acknowledges, False
        is_full = self._must_tell or self.state.is_lost
        if is_full:
            # The coordinator may have taken back what the list does not have. So nothing is taken
            # over before the answer, which has the whole assignment.
            self._target = None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._options.group,
            member_id=self.state.membership.member_id,
            member_epoch=self.state.epoch,
            instance_id=self.state.membership.instance_id,
            rack_id=self._options.rack if is_full else None,
            rebalance_timeout_ms=int(self._options.rebalance_timeout * 1000) if is_full else -1,
            subscribed_topic_names=(list(names) if is_full or names != self._told_names else None),
            server_assignor=self._options.remote_assignor if is_full else None,
            topic_partitions=self._owned() if is_full or tells else None,
        )
        self._must_tell = True  # until there is an answer
        response = await self._ask(request)
        check(response.error_code, response.error_message, of=f"group {self._options.group}")
        self._must_tell = False
        self._cluster.troubles.solved(f"group {self._options.group}")
        self._told_names = names
        self.state.follow(response.member_epoch)
        if response.heartbeat_interval_ms > 0:
            self._interval = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._target = response.assignment
        may_reconcile = self._reconciling is None and not self._is_closing
        if self._target is not None and may_reconcile:
            self._reconciling = asyncio.create_task(self._reconcile())

    def _owned(self) -> list[TopicPartitions]:
        if self.state.is_lost:
            return []
        topics: dict[str, TopicPartitions] = {}
        for topic, index in self._leaving.union(self._partitions):
            entry = topics.setdefault(topic, TopicPartitions(topic_id=self._ids[topic]))
            entry.partitions.append(index)
        return list(topics.values())

    async def _refused(self, error: ApiError) -> float:
        """Return the seconds until the next attempt; note an error that no attempt helps."""
        self._must_tell = True
        if error.code in _EXPELLED:
            _log.warning("lost the membership of group %s: %s", self._options.group, error)
            self.state.lose()
            await self._give_up_all()
            return self._backoff.failed()
        if error.code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(self._options.group)
        if error.retriable:
            self._cluster.troubles.met(f"group {self._options.group}", error, grace=USUAL_S)
        else:
            _log.error("group %s: %s", self._options.group, error)  # the next poll raises it
            self.state.failure = error
            self._changed.set()
        return self._backoff.failed()

    async def _leave(self) -> None:
        """Leave at once; a static member keeps its place for its return."""
        if self.state.is_lost:
            return
        membership = self.state.membership
        is_static = membership.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._options.group,
            member_id=membership.member_id,
            member_epoch=LEAVING_FOR_A_WHILE if is_static else LEAVING,
            instance_id=membership.instance_id,
        )
        self.state.lose()
        try:
            response = await self._ask(request)
            check(response.error_code, response.error_message)
        except QbusError as error:
            _log.warning("cannot leave group %s properly: %s", self._options.group, error)

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        answer: ConsumerGroupHeartbeatResponse = await self._cluster.ask_coordinator(
            self._options.group,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            request,
            connection_group=ConnectionGroup.MAIN,
        )
        return answer

    # The way to what it is to have

    async def _reconcile(self) -> None:
        done: Assignment | None = None
        while (target := self._target) is not None:
            wanted, is_complete = await self._resolve(target)
            await self._give_up(wanted)
            if not await self._take_over(target, wanted):
                continue  # there is a newer target, or none any more
            if is_complete or done is not target:
                self._acknowledges = True
                self._soon.set()
            done = target
            if not is_complete:
                await asyncio.sleep(_UNRESOLVED_INTERVAL)
            elif self._target is target:
                self._target = None
        self._reconciling = None

    async def _resolve(self, target: Assignment) -> tuple[dict[TopicPartition, bytes], bool]:
        """Return the partitions of a target with the ids of their topics, and whether that is all.

        Topics that are not known here are looked up.
        """
        ids = {part.topic_id for part in target.topic_partitions}
        names = self._names()
        if ids - names.keys():
            with contextlib.suppress(QbusError):
                await self._cluster.refresh(self._wanted.names if self._wanted is not None else ())
            names = self._names()
        wanted = {
            TopicPartition(names[part.topic_id], index): part.topic_id
            for part in target.topic_partitions
            if part.topic_id in names
            for index in part.partitions
        }
        return wanted, ids <= names.keys()

    def _names(self) -> dict[bytes, str]:
        """The names of topics by id: of those known now, and of those that it reads still."""
        known = {
            topic.topic_id.bytes: name for name, topic in self._cluster.metadata.topics.items()
        }
        return {topic_id: name for name, topic_id in self._ids.items()} | known

    async def _take_over(self, target: Assignment, wanted: dict[TopicPartition, bytes]) -> bool:
        """Read what is new, unless there is a newer target; return whether there is not."""
        is_current = False

        async def receive() -> None:
            nonlocal is_current
            is_current = self._target is target and not self.state.is_lost
            if not is_current:
                return
            added = wanted.keys() - set(self._partitions)
            self._ids = {topic: topic_id for (topic, _), topic_id in wanted.items()}
            self._partitions.add(added)
            await self._options.callbacks.assigned(added)

        await self._executor.run_in_poll(receive)
        return is_current

    async def _give_up(self, wanted: Collection[TopicPartition]) -> None:
        """Give up all other partitions, after everything read of them was committed."""
        if all(partition in wanted for partition in self._partitions):
            return

        def choose() -> list[TopicPartition]:
            chosen = [partition for partition in self._partitions if partition not in wanted]
            self._leaving = frozenset(chosen)
            return chosen

        await self._handover.give_up(choose)
        self._leaving = frozenset()

    async def _give_up_all(self) -> None:
        """Give up what others may have already, before joining again."""
        self._target = None
        self._leaving = frozenset()
        self._acknowledges = False
        await self._stop_reconciling()
        await self._executor.run_in_poll(self._handover.release_all)


def _now() -> float:
    return asyncio.get_running_loop().time()
