"""The commits of one consumer: in the order in which they were asked for, none for a later place.

A commit is bound to the generation in which it was asked for. While it waits or is tried again the
group may give the partitions to others, who commit further than we had come: then it fails, and is
never sent with another generation, in which the coordinator would take it, and go back.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode, QbusError

from ..committed import NO_MEMBER, Membership, try_commit
from ..net.cluster import Cluster
from ..types import OffsetAndMetadata, TopicPartition
from .state import MemberState

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class _Commit(NamedTuple):
    offsets: Offsets
    membership: Membership
    done: asyncio.Future[None]


class Commits:
    """Sends one request at a time; what is asked for meanwhile goes together in the next one."""

    def __init__(self, cluster: Cluster, group: str, state: MemberState | None) -> None:
        """``state``: of the member that commits; None: nobody's member does."""
        self._cluster = cluster
        self._group = group
        self._state = state
        self._waiting: list[_Commit] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, offsets: Offsets) -> asyncio.Future[None]:
        """Commit ``offsets``, after all that was submitted before.

        The future has the :class:`~qbus.errors.ApiError` of the first that was refused; it need not
        be awaited, and cancelling it stops nothing.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if (refusal := self._refusal()) is not None:
            done.set_exception(refusal)
            done.exception()  # nobody has to ask
            return done
        membership = NO_MEMBER if self._state is None else self._state.membership
        self._waiting.append(_Commit(dict(offsets), membership, done))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return done

    def _refusal(self) -> ApiError | None:
        """Why nothing can be committed now.

        A member that has lost its place says so itself: without a generation it would be taken for
        nobody's member, which may commit anything as long as the group is empty.
        """
        if self._state is None or (self._state.may_commit and not self._state.is_lost):
            return None
        if self._state.is_lost:
            return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "we have no place in the group")
        return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "commit again after the next poll")

    async def drain(self) -> None:
        """Return when everything that was submitted has succeeded or failed."""
        while self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)

    async def close(self) -> None:
        """Give up what is not done."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._waiting:
            self._waiting.pop().done.cancel()

    async def _work(self) -> None:
        try:
            while self._waiting:
                together = self._next()
                try:
                    await self._send(together)
                finally:  # also when we are cancelled
                    for commit in together:
                        commit.done.cancel()
        finally:
            self._task = None

    def _next(self) -> list[_Commit]:
        """The first that wait, as far as they are of one member and generation."""
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

        def before_each() -> None:
            if self._state is not None and self._state.membership != membership:
                raise ApiError(
                    ErrorCode.ILLEGAL_GENERATION, "the group has rebalanced since the commit began"
                )

        refused: dict[TopicPartition, ApiError] = {}
        failure: QbusError | None = None
        try:
            refused = await try_commit(
                self._cluster, self._group, offsets, membership, before_each=before_each
            )
        except QbusError as error:
            failure = error
        for commit in together:
            mine = (refused[partition] for partition in commit.offsets if partition in refused)
            self._finish(commit, failure or next(mine, None))

    def _finish(self, commit: _Commit, error: QbusError | None) -> None:
        if isinstance(error, ApiError) and self._state is not None:
            self._state.commit_refused(error, commit.membership)
        if commit.done.done():
            return
        if error is None:
            commit.done.set_result(None)
        else:
            commit.done.set_exception(error)
            commit.done.exception()  # nobody has to ask
