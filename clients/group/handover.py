"""How a member of either protocol gives partitions up: it stops, commits and calls back.

The steps run inside a poll (see ``poll_executor``), the commit between them. So nothing is read of
a partition while it is committed, and the user learns of it before another member can have it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from qbus.errors import ApiError, QbusError

from ..types import OffsetAndMetadata, TopicPartition
from .commits import Commits, Offsets
from .options import GroupOptions
from .poll_executor import PollExecutor

_log = logging.getLogger(__name__)


class Partitions(Protocol):
    """The partitions that the consumer reads."""

    def __iter__(self) -> Iterator[TopicPartition]: ...

    def add(self, partitions: Iterable[TopicPartition]) -> None: ...

    def stop(self, partitions: Iterable[TopicPartition]) -> None: ...

    def remove(self, partitions: Iterable[TopicPartition]) -> None: ...

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class Standing(Protocol):
    """Where the member stands in its group."""

    @property
    def is_lost(self) -> bool:
        """Whether other members may have its partitions."""

    @property
    def failure(self) -> ApiError | None:
        """Why it cannot continue."""


class Handover:
    """Gives up ``partitions`` of one member."""

    def __init__(
        self,
        options: GroupOptions,
        partitions: Partitions,
        commits: Commits,
        state: Standing,
        executor: PollExecutor,
        *,
        auto_commit: bool,
    ) -> None:
        self._options = options
        self._partitions = partitions
        self._commits = commits
        self._state = state
        self._executor = executor
        self._auto_commit = auto_commit

    async def give_up(self, choose: Callable[[], list[TopicPartition]]) -> None:
        """Give up the partitions that ``choose`` returns inside a poll.

        Everything read of them was committed then, unless the member lost its place. No commit is
        under way any more, not even one that a callback made, for another member has them next.
        """
        chosen: list[TopicPartition] = []
        offsets: Offsets = {}

        def stop() -> None:
            nonlocal chosen, offsets
            chosen = choose()
            self._partitions.stop(chosen)
            read = self._partitions.to_commit()
            offsets = {partition: read[partition] for partition in chosen if partition in read}

        await self._executor.run_in_poll(stop)
        if self._auto_commit and not self._state.is_lost:
            await self.commit(offsets)
        if chosen:
            await self._executor.run_in_poll(lambda: self.release(chosen))
            await self._commits.drain()

    async def finish(self, *, may_commit: bool) -> None:
        """Give up everything as the consumer closes: commit what was read, if wanted, call back.

        Returns when all commits are done. Raises what callbacks raise.
        """
        if may_commit and not self._state.is_lost:
            await self.commit(self._partitions.to_commit())
        try:
            await self.release_all()
        finally:
            await self._commits.drain()

    async def release_all(self) -> None:
        """Release all partitions, as :meth:`release` does."""
        await self.release(list(self._partitions))

    async def release(self, partitions: list[TopicPartition]) -> None:
        """Report revoked or lost partitions, then stop reading them; raise what callbacks raise."""
        callbacks = self._options.callbacks
        is_gone = self._state.is_lost or self._state.failure is not None
        try:
            if partitions:
                await (callbacks.lost if is_gone else callbacks.revoked)(partitions)
        finally:
            self._partitions.remove(partitions)

    async def commit(self, offsets: Offsets) -> None:
        """Commit ``offsets``; log why it cannot be done."""
        if not offsets:
            return
        try:
            await self._commits.submit(offsets)
        except QbusError as error:
            # Another member gets the partitions, or the next commit covers it.
            _log.warning("cannot commit offsets in group %s: %s", self._options.group, error)
        else:
            self._partitions.committed(offsets)
