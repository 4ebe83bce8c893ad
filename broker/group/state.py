"""The states of a consumer group, and its transitions.

    Empty ──────────────► PreparingRebalance ◄─────────── Stable
      ▲   a member joins     │    ▲     │    a member joins   ▲
      │                      │    │     │    again, leaves    │
      └──────────────────────┘    │     │    or falls silent  │
        no members left           │     │                     │
                                  │     ▼ all have joined     │
                            CompletingRebalance ──────────────┘
                                   the leader hands in the assignment

- *Empty*: no members; the group is kept for its offsets.
- *PreparingRebalance*: JoinGroup requests are parked until all members have joined or time is up.
- *CompletingRebalance*: a new generation exists; SyncGroup requests are parked until its leader
  brings the assignment.
- *Stable*: every member can have its assignment and heartbeats.
- *Dead*: deleted, or unloaded here; every state leads there.

A group of KIP-848 has no phases that all members share. It is *Empty*, *Stable* or *Dead* as well,
and with members that do not have what they are to have *Assigning*, until the broker has assigned
the partitions, or *Reconciling*, until the members have given up and taken over theirs.

The names are Kafka's, as clients see them in DescribeGroups and ListGroups.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    """The state of a group in its rebalance cycle."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


MOVES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset(
        {GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD},
    ),
    GroupState.COMPLETING: frozenset(
        {GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD},
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}
