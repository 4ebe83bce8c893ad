"""The commits of one consumer, sent in order and bound to a generation.

A commit is bound to the generation in which it was requested. While it waits or is retried, the
group may assign the partitions to other members, which commit later offsets. Then it fails. To send
it with the new generation would set back the group's offsets.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from qbus.errors import ApiError, ErrorCode, QbusError

from ..committed import NO_MEMBER, Membership, try_commit
from ..net.cluster import Cluster
from ..types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommittingState(Protocol):
    """The place of a member that commits."""

    @property
    def membership(self) -> Membership:
        """Who it is now."""

    @property
    def is_lost(self) -> bool:
        """Whether other members may have its partitions."""

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator accepts offsets now."""

    def commit_refused(self, error: ApiError, sent: Membership) -> None:
        """Handle a failed commit that was requested as ``sent``."""


class _Commit(NamedTuple):
    offsets: Offsets
    membership: Membership
    done: asyncio.Future[None]


class Commits:
    """Sends one request at a time; commits requested meanwhile share the next one."""

    def __init__(self, cluster: Cluster, group: str, state: CommittingState | None) -> None:
        """``state``: of the member that commits; None: the consumer is no member."""
        self._cluster = cluster
        self._group = group
        self._state = state
        self._waiting: list[_Commit] = []
        self._submitted = self._ended = 0
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def submit(self, offsets: Offsets) -> asyncio.Future[None]:
        """Commit ``offsets`` after everything submitted before.

        The future fails with the first :class:`~qbus.errors.ApiError` for these offsets. It need
        not be awaited, and cancelling it stops nothing.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if (refusal := self._refusal()) is not None:
            done.set_exception(refusal)
            done.exception()  # the caller need not await it
            return done
        membership = NO_MEMBER if self._state is None else self._state.membership
        self._waiting.append(_Commit(dict(offsets), membership, done))
        self._submitted += 1
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return done

    def _refusal(self) -> ApiError | None:
        """Return why nothing can be committed now, if so.

        A member without a place refuses commits itself: the coordinator would take them for commits
        of a non-member, which an empty group allows.
        """
        if self._state is None or (self._state.may_commit and not self._state.is_lost):
            return None
        if self._state.is_lost:
            return ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, "this member has lost its place in the group"
            )
        return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "commit again after the next poll")

    async def drain(self) -> None:
        """Return when everything submitted before has succeeded or failed."""
        last = self._submitted
        while self._ended < last:
            await self._progress.wait()

    async def close(self) -> None:
        """Cancel what is not done."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None  # it may never have begun
        self._cancel_waiting()

    async def _work(self) -> None:
        try:
            while self._waiting:
                together = self._next()
                try:
                    await self._send(together)
                finally:  # also when cancelled
                    for commit in together:
                        commit.done.cancel()
                    self._ended_up_to(self._ended + len(together))
        finally:
            self._task = None
            self._cancel_waiting()  # what a failure left: nobody would send it

    def _cancel_waiting(self) -> None:
        while self._waiting:
            self._waiting.pop().done.cancel()
        self._ended_up_to(self._submitted)

    def _ended_up_to(self, number: int) -> None:
        """So many of the commits that were submitted have succeeded, failed or been cancelled."""
        self._ended = number
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _next(self) -> list[_Commit]:
        """Take the first waiting commits that share a member and generation."""
        membership = self._waiting[0].membership
        count = next(
            (n for n, commit in enumerate(self._waiting) if commit.membership != membership),
            len(self._waiting),
        )
        together, self._waiting = self._waiting[:count], self._waiting[count:]
        return together

    async def _send(self, together: list[_Commit]) -> None:
        membership = together[0].membership
        offsets = {key: offset for commit in together for key, offset in commit.offsets.items()}
        refused: dict[TopicPartition, ApiError] = {}
        failure: QbusError | None = None
        try:
            refused = await self._try(offsets, membership)
        except QbusError as error:
            failure = error
        for commit in together:
            mine = (refused[partition] for partition in commit.offsets if partition in refused)
            self._finish(commit, failure or next(mine, None))

    async def _try(
        self, offsets: Offsets, membership: Membership
    ) -> dict[TopicPartition, ApiError]:
        """Commit as a member of a generation; return the errors of what was refused."""

        def before_each() -> None:
            if self._state is not None and self._state.membership != membership:
                raise ApiError(
                    ErrorCode.ILLEGAL_GENERATION, "the group has rebalanced since the commit began"
                )

        return await try_commit(
            self._cluster, self._group, offsets, membership, before_each=before_each
        )

    def _finish(self, commit: _Commit, error: QbusError | None) -> None:
        if isinstance(error, ApiError) and self._state is not None:
            self._state.commit_refused(error, commit.membership)
        if commit.done.done():
            return
        if error is None:
            commit.done.set_result(None)
        else:
            commit.done.set_exception(error)
            commit.done.exception()  # the caller need not await it
