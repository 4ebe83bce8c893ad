"""The feed of changes, and the decisions that write it.

Each transaction that changes a broker, a topic, a partition's state or a configuration also creates
the next ``/brokers/changes/change-<sequence>``, which names what it changed (:func:`decide`). A
broker that follows the feed reads the named nodes again, so it does not matter how many changes it
sees at once. Of topics that were created, grew or were deleted the change tells all (its
``details``), and a broker to which it is the next one of that topic need not read. Old changes are
pruned, but never the newest: a broker that does not find the last change it saw knows that it
missed some.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from qbus.metadata.errors import ChangesLost, NodeError
from qbus.metadata.store import Create, Delete, MetadataStore, Op
from qbus.metadata.znodes import ChangeNode

PATH = "/brokers/changes"
KEPT = 512
_PREFIX = "change-"
_READ_AT_ONCE = 16
_DELETED_AT_ONCE = 1000  # ZooKeeper takes 1 MiB in one transaction


class Change(NamedTuple):
    """An entry of the feed."""

    sequence: int
    data: bytes


def announce(data: bytes) -> Create:
    """Return the operation that appends ``data`` to the feed."""
    return Create(f"{PATH}/{_PREFIX}", data, sequential=True)


async def decide(
    store: MetadataStore, guards: Iterable[Op], writes: Iterable[Op], change: ChangeNode
) -> int:
    """Write what was decided, and announce it on the feed, in one transaction.

    ``guards`` check everything that the decision was made from: the fence of the controller, the
    identity of topics, the epochs of brokers. ``writes`` name the versions that they replace.

    Returns:
        The sequence number of the change in the feed.

    Raises:
        NodeError: another write came first, so the decision no longer holds. Nothing was written;
            ``path`` names the node that differs.
        TransactionTooLarge: nothing was written.
        StoreUnavailable: whether it was written is unknown.
    """
    results = await store.transaction([*guards, *writes, announce(change.encode())])
    return sequence_of(str(results[-1]))


def sequence_of(name: str) -> int:
    """Return the sequence number in the name or the path of a change."""
    return int(name.rpartition(_PREFIX)[2])


async def newest(store: MetadataStore) -> int:
    """Return the sequence number of the newest change; an empty feed gets a first one."""
    names = await store.children(PATH)
    if not names:
        (path,) = await store.transaction([announce(b"{}")])
        names = [str(path)]
    return sequence_of(names[-1])


async def kept(store: MetadataStore) -> AsyncIterator[bytes]:
    """Yield what the changes say that are still there, oldest first.

    Raises:
        StoreUnavailable: they cannot be read.
    """
    names = await store.children(PATH)
    for start in range(0, len(names), _READ_AT_ONCE):
        some = names[start : start + _READ_AT_ONCE]
        nodes = await asyncio.gather(*(store.get(f"{PATH}/{name}") for name in some))
        for node in nodes:
            if node is not None:
                yield node.data


async def prune(store: MetadataStore, keep: int = KEPT) -> int:
    """Delete all but the newest ``keep`` changes, oldest first; return the number deleted."""
    names = await store.children(PATH)
    old = names[: -max(keep, 1)]
    for start in range(0, len(old), _DELETED_AT_ONCE):
        some = old[start : start + _DELETED_AT_ONCE]
        try:
            await store.transaction([Delete(f"{PATH}/{name}") for name in some])
        except NodeError:  # another broker prunes as well
            return start
    return len(old)


async def follow(store: MetadataStore, after: int) -> AsyncIterator[list[Change]]:
    """Yield the changes after ``after`` as they come, all available ones at a time.

    Raises:
        ChangesLost: the change ``after`` or a later one was pruned before it was seen.
        StoreUnavailable: at the latest when the session ends.
    """
    while True:
        changed = asyncio.Event()
        sequences = sorted(sequence_of(name) for name in await store.children(PATH, changed.set))
        if after not in sequences:
            raise ChangesLost(f"the changes after {after} were pruned")
        new = sequences[sequences.index(after) + 1 :]
        if new:
            yield await _read(store, new)
            after = new[-1]
        else:
            await changed.wait()


async def _read(store: MetadataStore, sequences: list[int]) -> list[Change]:
    paths = [f"{PATH}/{_PREFIX}{sequence:010}" for sequence in sequences]
    nodes = await asyncio.gather(*(store.get(path) for path in paths))
    changes = [Change(n, node.data) for n, node in zip(sequences, nodes, strict=True) if node]
    if len(changes) < len(sequences):
        raise ChangesLost("changes were pruned while they were read")
    return changes
