"""Writes the states of many partitions, in as few transactions as the store allows."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from qbus.metadata import MetadataStore, NodeError, Op, Set
from qbus.metadata.feed import decide
from qbus.metadata.znodes import NO_LEADER, ChangeNode

from ..metadata.cache import MetadataCache
from .elections import StateChange

MAX_BYTES = 512 * 1024  # of a transaction; ZooKeeper takes 1 MiB
MAX_STATES = 1_000
_OVERHEAD = 64  # bytes that an operation takes beside its path and its data
_AT_ONCE = 4
_ATTEMPTS = 20
_LOGGED = 10  # changes of leaders that are told one by one

_log = logging.getLogger(__name__)


class StateWriter:
    """Writes partition states by compare-and-set until none is due."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store = store
        self._metadata = metadata

    async def write_due(
        self, due: Callable[[], list[StateChange]], guards: Callable[[], list[Op]]
    ) -> int:
        """Write what is due until nothing is; return the number of states written.

        ``due`` is called again after each round, so that it decides from current metadata when
        another write came first. ``guards`` returns the checks for every transaction. States that
        cannot be written at all, such as those of malformed nodes, are dropped after some attempts.

        Raises:
            ApiError: a guard is not available.
            StoreUnavailable: the store cannot be used.
        """
        written, most, fruitless = 0, MAX_STATES, 0
        while changes := due():
            if fruitless == _ATTEMPTS:
                _log.error("giving up on %d partition states that cannot be written", len(changes))
                break
            results = []
            parts = list(batches(changes, most))
            for start in range(0, len(parts), _AT_ONCE):
                some = parts[start : start + _AT_ONCE]
                results += await asyncio.gather(*(self._write(part, guards()) for part in some))
            written += sum(len(part) for part, done in zip(parts, results, strict=True) if done)
            fruitless = fruitless + 1 if not any(done is not None for done in results) else 0
            if None in results:
                most = max(most // 4, 1)  # one conflict fails its whole transaction
                await self._metadata.catch_up()
            else:
                most = MAX_STATES
                await self._metadata.applied(max(done for done in results if done is not None))
        return written

    async def _write(self, changes: Sequence[StateChange], guards: Sequence[Op]) -> int | None:
        """Write one transaction; return the change's number, None if another write came first."""
        try:
            done = await decide(self._store, guards, operations_of(changes), change_of(changes))
        except NodeError:
            return None
        self._log_new_leaders(changes)
        return done

    def _log_new_leaders(self, changes: Sequence[StateChange]) -> None:
        moved = [change for change in changes if change.state.leader != _leader_before(change)]
        for change in moved[:_LOGGED]:
            _log.info(
                "%s-%d: %s leads, before it was %s",
                change.topic.name,
                change.partition,
                self._told(change.state.leader),
                self._told(_leader_before(change)),
            )
        if len(moved) > _LOGGED:
            _log.info("%d more partitions have new leaders", len(moved) - _LOGGED)

    def _told(self, broker: int) -> str:
        if broker == NO_LEADER:
            return "nobody"
        info = self._metadata.brokers.get(broker)
        state = ", which is gone" if info is None else ", which stops" if info.is_stopping else ""
        return f"broker {broker}{state}"


def _leader_before(change: StateChange) -> int:
    return change.topic.partitions[change.partition].leader


def operations_of(changes: Sequence[StateChange]) -> list[Op]:
    """Return the operations of some changes, guarded by the identity of their topics."""
    topics = {change.topic.id: change.topic for change in changes}
    guards = [guard for topic in topics.values() for guard in topic.guards]
    return [
        *guards,
        *(Set(change.path, change.state.encode(), change.version) for change in changes),
    ]


def change_of(changes: Sequence[StateChange]) -> ChangeNode:
    """Return what the feed announces of some changes."""
    states: dict[str, list[int]] = {}
    for change in changes:
        states.setdefault(change.topic.name, []).append(change.partition)
    return ChangeNode(states={topic: tuple(some) for topic, some in states.items()})


def batches(changes: Sequence[StateChange], most: int) -> Iterator[list[StateChange]]:
    """Split changes into transactions of at most ``most`` states and MAX_BYTES."""
    part: list[StateChange] = []
    size = 0
    for change in changes:
        # The announcement repeats the name; a guard repeats at most the path.
        needed = 2 * (len(change.path) + _OVERHEAD)
        needed += len(change.state.encode()) + len(change.topic.name)
        if part and (len(part) == most or size + needed > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(change)
        size += needed
    if part:
        yield part
