"""Telling the user which partitions come and go."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from ..types import TopicPartition

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A plain function or a coroutine function."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What to call in a rebalance, always inside a poll (or close); None: nothing.

    on_assigned: these are ours from now on; called after each rebalance, if only with none.
    on_revoked: these are ours no longer when this returns, and nobody else's before: the time to
        commit what was done with them.
    on_lost: these are another's already, perhaps: we have lost our place in the group. By default
        what on_revoked is.

    What one raises, the poll raises, after the change was made all the same.
    """

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions have come."""
        await _call(self.on_assigned, partitions)

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions go."""
        await _call(self.on_revoked, partitions)

    async def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions have gone."""
        await _call(self.on_lost or self.on_revoked, partitions)


async def _call(callback: Callback | None, partitions: Iterable[TopicPartition]) -> None:
    if callback is not None:
        result = callback(sorted(partitions))
        if inspect.isawaitable(result):
            await result
