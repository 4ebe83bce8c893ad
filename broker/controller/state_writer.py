"""Writes states of many partitions: in transactions as large as may be, none over another's."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from qbus.metadata import MetadataStore, NodeError, Op, Set
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode

from ..metadata.cache import MetadataCache
from .elections import StateChange

MAX_BYTES = 512 * 1024  # of a transaction; ZooKeeper takes 1 MiB
MAX_STATES = 1_000
_OVERHEAD = 64  # bytes that an operation takes beside its path and its data
_AT_ONCE = 4
_ATTEMPTS = 20

_log = logging.getLogger(__name__)


class StateWriter:
    """Brings partitions to the states that are due."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store = store
        self._metadata = metadata

    async def write_due(
        self, due: Callable[[], list[StateChange]], guards: Callable[[], list[Op]]
    ) -> int:
        """Write what is due until nothing is; how many states that were.

        ``due`` decides from the metadata as it is then: whatever was overtaken is decided anew.
        ``guards`` are the checks that go with every transaction. What cannot be written at all, as
        when a node holds something else, is given up after a while.

        Raises:
            ApiError: a guard cannot be had.
            StoreUnavailable: the store cannot be used.
        """
        written, most, fruitless = 0, MAX_STATES, 0
        while changes := due():
            if fruitless == _ATTEMPTS:
                _log.error("the states of %d partitions cannot be written", len(changes))
                break
            results = []
            parts = list(batches(changes, most))
            for start in range(0, len(parts), _AT_ONCE):
                some = parts[start : start + _AT_ONCE]
                results += await asyncio.gather(*(self._write(part, guards()) for part in some))
            written += sum(len(part) for part, done in zip(parts, results, strict=True) if done)
            fruitless = fruitless + 1 if not any(done is not None for done in results) else 0
            if None in results:
                most = max(most // 4, 1)  # one that is overtaken holds up those beside it
                await self._metadata.catch_up()
            else:
                most = MAX_STATES
                await self._metadata.applied(max(done for done in results if done is not None))
        return written

    async def _write(self, changes: Sequence[StateChange], guards: Sequence[Op]) -> int | None:
        """The number of the change in the feed; None when it was overtaken."""
        try:
            return await decide(self._store, guards, operations_of(changes), change_of(changes))
        except NodeError:
            return None


def operations_of(changes: Sequence[StateChange]) -> list[Op]:
    """What writes some changes, each to the very topic that it was decided for."""
    topics = {change.topic.id: change.topic for change in changes}
    guards = [guard for topic in topics.values() for guard in topic.guards]
    return [
        *guards,
        *(Set(change.path, change.state.encode(), change.version) for change in changes),
    ]


def change_of(changes: Sequence[StateChange]) -> ChangeNode:
    """What the feed says of some changes."""
    states: dict[str, list[int]] = {}
    for change in changes:
        states.setdefault(change.topic.name, []).append(change.partition)
    return ChangeNode(states={topic: tuple(some) for topic, some in states.items()})


def batches(changes: Sequence[StateChange], most: int) -> Iterator[list[StateChange]]:
    """The changes in parts, each of at most ``most`` and of what a transaction takes."""
    part: list[StateChange] = []
    size = 0
    for change in changes:
        # The name comes once more in the announcement, and the path, or less, as a guard.
        needed = 2 * (len(change.path) + _OVERHEAD)
        needed += len(change.state.encode()) + len(change.topic.name)
        if part and (len(part) == most or size + needed > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(change)
        size += needed
    if part:
        yield part
