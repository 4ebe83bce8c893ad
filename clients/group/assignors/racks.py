"""Whether it matters who reads from where (KIP-881)."""

from collections.abc import Collection, Sequence


def should_match_racks(readers: Collection[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether to look at racks: some are common, and not every partition is in all of them.

    ``readers``: the racks of members; ``partitions``: those of each partition's replicas.
    """
    everywhere: frozenset[str] = frozenset().union(*partitions)
    if everywhere.isdisjoint(readers):
        return False
    return any(racks != everywhere for racks in partitions)
