"""A member of a share group: its heartbeats, which also tell it what it is assigned (KIP-932)."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection

from qbus.errors import ApiError, ErrorCode, QbusError, WireError
from qbus.service.backoff import Backoff
from qbus.wire import ApiKey
from qbus.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from ..errors import check
from ..net.cluster import Cluster
from ..net.routing import COORDINATOR_MOVED
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .options import ShareOptions

_log = logging.getLogger(__name__)

_JOINING = 0
_LEAVING = -1
_INTERVAL = 5.0
"""Seconds between heartbeats, until the coordinator says."""
_UNRESOLVED_INTERVAL = 0.2
"""Seconds until a heartbeat when an assigned topic is not known yet."""
_EXPELLED = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)


class ShareMembership:
    """Joins at the first poll, and again when the group lost the member; leaves at the end.

    ``assign`` is called with the partitions to take records of, and ``changed`` set, when they
    change. A member that does not poll for ``max_poll_interval`` leaves until its next poll.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ShareOptions,
        member_id: str,
        assign: Callable[[Collection[TopicPartition]], None],
        changed: asyncio.Event,
    ) -> None:
        self.failure: QbusError | None = None
        self._cluster = cluster
        self._options = options
        self._member_id = member_id
        self._assign = assign
        self._changed = changed
        self._epoch = _JOINING
        self._interval = _INTERVAL
        self._assignment: Assignment | None = None
        self._backoff = Backoff()
        self._polled_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()

    @property
    def is_joining(self) -> bool:
        """Whether the group has not taken the member in yet."""
        return self._epoch == _JOINING

    def polled(self) -> None:
        """Note a poll: join, unless this is a member."""
        self._polled_at = time.monotonic()
        if self._task is None or (self._task.done() and self.failure is None):
            self._task = asyncio.create_task(self._run())

    def rejoin(self) -> None:
        """Join again: a broker does not know the member."""
        self._epoch = _JOINING
        self._soon.set()

    async def close(self) -> None:
        """Leave the group."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._leave()

    async def _run(self) -> None:
        try:
            await self._beat()
        except QbusError as error:
            self.failure = error
        self._changed.set()

    async def _beat(self) -> None:
        while time.monotonic() - self._polled_at <= self._options.max_poll_interval:
            try:
                pause = await self._beat_once()
                self._backoff.succeeded()
            except WireError as error:
                _log.warning("share group %s: %s", self._options.group, error)
                self._cluster.forget_coordinator(self._options.group)
                pause = self._backoff.failed()
            except ApiError as error:
                pause = self._refused(error)
            self._soon.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
        _log.warning(
            "no poll within %s s: leaving share group %s",
            self._options.max_poll_interval,
            self._options.group,
        )
        await self._leave()
        self._assign(())

    async def _beat_once(self) -> float:
        """Send a heartbeat; return the seconds until the next."""
        is_joining = self._epoch == _JOINING
        response: ShareGroupHeartbeatResponse = await self._ask(
            ShareGroupHeartbeatRequest(
                group_id=self._options.group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rack_id=self._options.rack if is_joining else None,
                subscribed_topic_names=list(self._options.topics) if is_joining else None,
            )
        )
        check(
            response.error_code,
            response.error_message,
            of=f"share group {self._options.group}",
        )
        self._cluster.troubles.solved(self._subject)
        self._epoch = response.member_epoch
        if response.heartbeat_interval_ms > 0:
            self._interval = response.heartbeat_interval_ms / 1000
        await self._look_for_topics()
        if response.assignment is not None:
            self._assignment = response.assignment
        if self._assignment is not None:
            return await self._resolve(self._assignment)
        return self._interval

    async def _look_for_topics(self) -> None:
        """Look up topics that are not known, which says in the log what is waited for.

        Raises the :class:`~qbus.errors.ApiError` of a topic that does not come by waiting.
        """
        metadata = self._cluster.metadata
        missing = [name for name in self._options.topics if name not in metadata.topics]
        if not missing:
            return
        with contextlib.suppress(ApiError):
            await self._cluster.refresh(missing)
        for name in missing:
            error = metadata.errors.get(name)
            if error is not None and not error.retriable:
                raise error

    async def _resolve(self, assignment: Assignment) -> float:
        """Take on an assignment, whose topics are ids; return the seconds until the next heartbeat.

        Topics that are not known yet are looked up now and with the next heartbeat.
        """
        names = self._names()
        wanted = {part.topic_id for part in assignment.topic_partitions}
        if wanted - names.keys():
            with contextlib.suppress(ApiError):
                await self._cluster.refresh(self._options.topics)
            names = self._names()
        self._assign(
            [
                TopicPartition(names[part.topic_id], index)
                for part in assignment.topic_partitions
                if part.topic_id in names
                for index in part.partitions
            ]
        )
        self._changed.set()
        if wanted - names.keys():
            return min(_UNRESOLVED_INTERVAL, self._interval)
        self._assignment = None
        return self._interval

    def _names(self) -> dict[bytes, str]:
        topics = self._cluster.metadata.topics
        return {
            topics[name].topic_id.bytes: name for name in self._options.topics if name in topics
        }

    def _refused(self, error: ApiError) -> float:
        """Return the seconds until the next attempt; raise an error that no attempt helps."""
        group = self._options.group
        if error.code in _EXPELLED:
            if self._epoch != _JOINING:
                _log.warning("share group %s lost this member: %s", group, error.code.name)
            elif error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise error
            self._epoch = _JOINING
            self._assignment = None
            self._assign(())
            return self._backoff.failed()
        if error.code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(group)
        elif not error.retriable:
            self._assign(())
            raise error
        self._cluster.troubles.met(self._subject, error, grace=USUAL_S)
        return self._backoff.failed()

    @property
    def _subject(self) -> str:
        return f"the share group {self._options.group}"

    async def _leave(self) -> None:
        if self._epoch == _JOINING:
            return
        self._epoch = _JOINING
        request = ShareGroupHeartbeatRequest(
            group_id=self._options.group, member_id=self._member_id, member_epoch=_LEAVING
        )
        try:
            response = await self._ask(request)
            check(response.error_code, response.error_message)
        except QbusError as error:
            _log.warning("cannot leave share group %s properly: %s", self._options.group, error)

    async def _ask(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        answer: ShareGroupHeartbeatResponse = await self._cluster.ask_coordinator(
            self._options.group, ApiKey.SHARE_GROUP_HEARTBEAT, request
        )
        return answer
