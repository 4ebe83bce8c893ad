"""Share sessions (KIP-932): what a member of a share group fetches from this broker.

A session has an epoch that each request raises by one, so that none is taken twice or out of order.
It ends when the member says so or its connection is closed, and what the member has of this
broker's partitions becomes available then: others need not wait for the locks to run out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from qbus.config.groups import ShareKeys
from qbus.errors import ApiError, ErrorCode

from ..net.peer import Peer

if TYPE_CHECKING:
    from ..queues.queue import ShareQueue

_log = logging.getLogger(__name__)

TopicPartition = tuple[bytes, int]
"""A topic's id and a partition's index."""

MOST_PARTITIONS: Final = 10_000
"""Maximum number of partitions of one session; each request looks at all of them."""

OPEN: Final = 0
CLOSE: Final = -1
_LAST: Final = 2**31 - 1


class ShareSession:
    """What one member fetches here. ``epoch`` is that of the next request.

    ``partitions`` are fetched from. The member may have records of those in ``touched``, under the
    name ``owner``: what is left of a session that is over must not pass for this one's.
    """

    __slots__ = (
        "_turn",
        "epoch",
        "finish",
        "group",
        "is_closed",
        "member",
        "owner",
        "partitions",
        "touched",
    )

    def __init__(self, group: str, member: str, number: int) -> None:
        """``number`` tells it from other sessions of the member."""
        self.group = group
        self.member = member
        self.owner = f"{member}/{number}"
        self.epoch = 1
        self.partitions: dict[TopicPartition, None] = {}
        self.touched: set[TopicPartition] = set()
        self.is_closed = False
        self.finish: Callable[[], None] | None = None  # answers the fetch that waits
        self._turn = 0

    def update(self, wanted: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        """Fetch from other partitions from now on.

        Raises:
            ApiError: INVALID_REQUEST, there are too many.
        """
        partitions = self.partitions | dict.fromkeys(wanted)
        if len(partitions) > MOST_PARTITIONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"a session has at most {MOST_PARTITIONS} partitions"
            )
        self.partitions = partitions
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def in_turn(self) -> list[TopicPartition]:
        """The partitions, each time beginning with another one: none is always the last."""
        listed = list(self.partitions)
        if not listed:
            return listed
        self._turn = (self._turn + 1) % len(listed)
        return listed[self._turn :] + listed[: self._turn]


class Queues(Protocol):
    """Finds the queues of this broker."""

    def known(self, group: str, topic: str | bytes, index: int) -> "ShareQueue | None":
        """What a group takes of a partition that is led here, if it knows the group.

        Raises ApiError.
        """


class ShareSessions:
    """The share sessions of a broker, by group and member."""

    def __init__(self, queues: Queues, config: ShareKeys) -> None:
        self._queues = queues
        self._config = config
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_peers: dict[Peer, set[ShareSession]] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._sessions.values()))

    def open(self, group: str, member: str, peer: Peer) -> tuple[ShareSession, ShareSession | None]:
        """A new session, and the former one of this member, if it had one, which is to be released.

        Raises:
            ApiError: SHARE_SESSION_LIMIT_REACHED.
        """
        former = self._sessions.get((group, member))
        if former is None and len(self._sessions) >= self._config.group_share_max_share_sessions:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"the broker has {len(self._sessions)} share sessions, the most that it may have",
            )
        if former is not None:
            self._remove(former)
        session = self._sessions[group, member] = ShareSession(group, member, next(self._numbers))
        known = self._of_peers.get(peer)
        if known is None:
            known = self._of_peers[peer] = set()
            peer.on_close += (lambda: self._on_closed(peer),)
        known.add(session)
        return session, former

    def go_on(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session of a request that is not the first one; a fetch that waits is answered.

        Raises:
            ApiError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group, member))
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"{member} of {group} has no session here"
            )
        if epoch == CLOSE:
            self._remove(session)
        elif epoch == session.epoch:
            session.epoch = 1 if epoch == _LAST else epoch + 1
        else:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the session's epoch is {session.epoch}, not {epoch}",
            )
        if session.finish is not None:
            session.finish()
        return session

    async def release(self, session: ShareSession) -> None:
        """Make available what the member of a session that is over has."""
        for topic_id, index in list(session.touched):
            try:
                queue = self._queues.known(session.group, topic_id, index)
                if queue is not None:
                    await queue.release_member(session.owner)
            except ApiError as error:
                # Who leads the partition now gives everything out again.
                _log.debug("nothing to release in partition %d: %s", index, error)
        session.touched.clear()

    def release_later(self, session: ShareSession) -> None:
        """The same, in a task."""
        task = asyncio.get_running_loop().create_task(self.release(session))
        self._releases.add(task)
        task.add_done_callback(self._released)

    def drain(self) -> None:
        """Let no fetch wait any longer, neither those that are here nor those still to come."""
        self.is_draining = True
        for session in self:
            if session.finish is not None:
                session.finish()

    async def close(self) -> None:
        """Wait for what is being released."""
        self.drain()
        if self._releases:
            await asyncio.wait(self._releases)

    def _released(self, task: asyncio.Task[None]) -> None:
        self._releases.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the records of a closed share session are locked on", exc_info=error)

    def _remove(self, session: ShareSession) -> None:
        session.is_closed = True
        del self._sessions[session.group, session.member]
        if session.finish is not None:
            session.finish()
        for sessions in self._of_peers.values():
            if session in sessions:
                sessions.discard(session)
                break

    def _on_closed(self, peer: Peer) -> None:
        for session in self._of_peers.pop(peer, ()):
            if not session.is_closed:
                session.is_closed = True
                del self._sessions[session.group, session.member]
                self.release_later(session)
