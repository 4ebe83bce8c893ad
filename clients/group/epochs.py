"""The place of a member in a group of the consumer protocol (KIP-848), and commits that keep to it.

The member's epoch is the coordinator's: each heartbeat may bring a newer one, while the member
keeps the partitions that it has. So a commit is not bound to the epoch in which it was requested,
but to the member's stay in the group: it is sent in the present epoch, and again in a newer one if
it came too late. Partitions are given up only when all commits for them are done.
"""

import asyncio
from collections.abc import Mapping

from qbus.errors import ApiError, ErrorCode

from ..committed import Membership, try_commit
from ..net.cluster import Cluster
from ..types import OffsetAndMetadata, TopicPartition
from .commits import Commits
from .state import Phase

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""The epochs of heartbeats that join, leave, and leave a static member's place for its return."""

_EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class EpochState:
    """Where a member stands. Requests carry ``membership``, whose generation is the epoch.

    ``failure``: why it cannot continue. ``is_expelled``: a commit was told that it is no member.
    """

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.membership = Membership(member_id, -1, instance_id)
        self.failure: ApiError | None = None
        self.is_expelled = False
        self._since = 0
        self._moved = asyncio.Event()

    @property
    def epoch(self) -> int:
        """The member's epoch; 0: it is to join."""
        return max(self.membership.generation, JOINING)

    @property
    def is_lost(self) -> bool:
        """Whether it is no member, and other members may have its partitions."""
        return self.membership.generation < 0

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes offsets: always."""
        return True

    @property
    def phase(self) -> Phase:
        """Whether it has a place: there is nothing between."""
        return Phase.UNJOINED if self.is_lost else Phase.STABLE

    def follow(self, epoch: int) -> None:
        """A heartbeat was answered with this epoch."""
        if self.is_lost:
            self._since = epoch
            self.is_expelled = False
        self._move(epoch)

    def lose(self) -> None:
        """It is no member any more."""
        self._move(-1)

    def is_of_this_stay(self, membership: Membership) -> bool:
        """Whether the member has been in the group ever since it was this."""
        return not self.is_lost and membership.generation >= self._since

    async def newer(self, membership: Membership) -> None:
        """Wait until the epoch is another one."""
        while self.membership == membership:
            await self._moved.wait()

    def commit_refused(self, error: ApiError, sent: Membership) -> None:
        """Handle a failed commit: only errors about the membership matter."""
        if not self.is_of_this_stay(sent):
            return
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            self.failure = error
        elif error.code in _EXPELLED:
            self.is_expelled = True

    def _move(self, epoch: int) -> None:
        self.membership = self.membership._replace(generation=epoch)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class EpochCommits(Commits):
    """Commits of a member whose epoch changes while they are under way."""

    def __init__(
        self, cluster: Cluster, group: str, state: EpochState, hurry: asyncio.Event
    ) -> None:
        """``hurry`` is set when a heartbeat should bring the newer epoch."""
        super().__init__(cluster, group, state)
        self._epochs = state
        self._hurry = hurry

    async def _try(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], membership: Membership
    ) -> dict[TopicPartition, ApiError]:
        state = self._epochs
        deadline = asyncio.get_running_loop().time() + self._cluster.request_timeout
        outcome: dict[TopicPartition, ApiError] = {}
        while True:
            sent = state.membership

            def before_each(sent: Membership = sent) -> None:
                if not state.is_of_this_stay(membership):
                    raise ApiError(
                        ErrorCode.ILLEGAL_GENERATION,
                        "the member lost its place since the commit began",
                    )
                if state.membership != sent:
                    raise _NewerEpoch

            try:
                refused = await try_commit(
                    self._cluster, self._group, offsets, sent, before_each=before_each
                )
            except _NewerEpoch:
                continue
            late = {
                partition: offsets[partition]
                for partition, error in refused.items()
                if error.code is ErrorCode.STALE_MEMBER_EPOCH
            }
            outcome |= {key: error for key, error in refused.items() if key not in late}
            if not late:
                return outcome
            self._hurry.set()
            try:
                async with asyncio.timeout_at(deadline):
                    await state.newer(sent)
            except TimeoutError:
                return outcome | {partition: refused[partition] for partition in late}
            offsets = late


class _NewerEpoch(Exception):  # noqa: N818 - what it is
    """The request is out of date; one with the newer epoch is to be sent."""
