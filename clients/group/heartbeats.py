"""Heartbeats: they show the coordinator that a member lives, and tell the member of rebalances.

They go on whatever the user does, but not for ever without a poll: a member that stops polling
leaves the group, so that others read its partitions (KIP-62).
"""

import asyncio
import logging

from qbus.errors import ApiError, QbusError, WireError
from qbus.wire import ApiKey
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from ..committed import Membership
from ..errors import check
from ..net.cluster import Cluster
from .member import Member
from .options import GroupOptions
from .state import MemberState, Phase

_log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats while the member has a place. Sets ``changed`` when a poll has work to
    do.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions,
        member: Member,
        state: MemberState,
        changed: asyncio.Event,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._member = member
        self._state = state
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._polled_at = 0.0
        self._answered_at = 0.0

    def polled(self) -> None:
        """Note that the user polled."""
        self._polled_at = _now()

    def start(self) -> None:
        """Start sending, if not started."""
        self._answered_at = _now()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _beat(self) -> None:
        while self._state.failure is None:
            await asyncio.sleep(self._options.heartbeat_interval)
            if _now() - self._polled_at > self._options.max_poll_interval:
                await self._leave()
            if self._state.phase is not Phase.STABLE:
                if self._state.is_lost:
                    return
                continue  # JoinGroup and SyncGroup count as heartbeats
            await self._beat_once()

    async def _beat_once(self) -> None:
        sent = self._state.membership
        request = HeartbeatRequest(
            group_id=self._options.group,
            generation_id=sent.generation,
            member_id=sent.member_id,
            group_instance_id=sent.instance_id,
        )
        try:
            response: HeartbeatResponse = await self._ask(request)
            check(response.error_code, of=f"group {self._options.group}")
        except ApiError as error:
            self._note(error, sent)
        except WireError as error:
            _log.warning("group %s: %s", self._options.group, error)
            self._cluster.forget_coordinator(self._options.group)
        else:
            self._answered_at = _now()
            return
        self._changed.set()

    def _note(self, error: ApiError, sent: Membership) -> None:
        try:
            self._member.refused(error, sent)
        except ApiError:
            _log.error("group %s: %s", self._options.group, error)  # the next poll raises it
        if _now() - self._answered_at > self._options.session_timeout:
            self._answered_at = _now()
            self._cluster.forget_coordinator(self._options.group)

    async def _ask(self, request: HeartbeatRequest) -> HeartbeatResponse:
        answer: HeartbeatResponse = await self._cluster.ask_coordinator(
            self._options.group,
            ApiKey.HEARTBEAT,
            request,
            timeout=min(self._options.session_timeout, self._cluster.request_timeout),
        )
        return answer

    async def _leave(self) -> None:
        _log.warning(
            "no poll within %s s: leaving group %s",
            self._options.max_poll_interval,
            self._options.group,
        )
        try:
            await self._member.leave("consumer poll timeout has expired")
        except QbusError as error:
            _log.warning("cannot leave the group properly: %s", error)
        self._changed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
