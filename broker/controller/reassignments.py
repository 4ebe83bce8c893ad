"""Reassignments move partitions to other brokers (KIP-455): begin, replace, cancel, complete.

During a reassignment, a partition has its target replicas and its former ones. When all target
replicas are in sync, the others are removed. Every step begins a new leader epoch, so that the
leader reloads its replicas. The functions are pure and concern one partition.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Op, Set
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode, TopicNode

from ..metadata.image import PartitionInfo, Topic, topic_node
from ..metadata.partition_states import moved
from .elections import TopicRules, View
from .placement import sharing


class Move(NamedTuple):
    """The new replicas of a partition, and its state with them."""

    partition: PartitionInfo
    state: PartitionStateNode


def begin(
    partition: PartitionInfo,
    target: Sequence[int],
    view: View,
    rules: TopicRules,
    *,
    may_change_factor: bool = True,
) -> Move:
    """Begin to move to ``target``, the preferred leader first; replaces a move under way.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    _check(target, view)
    had = _without(partition.replicas, partition.adding)
    if not may_change_factor and len(target) != len(had):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{len(had)} replicas would become {len(target)}, which was not allowed",
        )
    removing = _without(had, target)
    planned = replace(
        partition,
        replicas=(*target, *removing),
        adding=_without(target, had),
        removing=removing,
    )
    return _move(partition, planned, view, rules)


def cancel(partition: PartitionInfo, view: View, rules: TopicRules) -> Move:
    """Cancel a move.

    Raises:
        ApiError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT, no former replica is in
            sync.
    """
    if not partition.is_moving:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition does not move")
    had = _without(partition.replicas, partition.adding)
    return _move(partition, replace(partition, replicas=had, adding=(), removing=()), view, rules)


def complete(partition: PartitionInfo, view: View, rules: TopicRules) -> Move | None:
    """Complete a move if all target replicas are in sync."""
    if not partition.is_moving or not set(partition.target) <= set(partition.isr):
        return None
    done = replace(partition, replicas=partition.target, adding=(), removing=())
    return _move(partition, done, view, rules)


def writes(topic: Topic, moves: Mapping[int, Move]) -> list[Op]:
    """Return the operations that write moves, by partition, of one topic."""
    if not moves:
        return []
    partitions = list(topic.partitions)
    ops: list[Op] = []
    for index, (partition, state) in moves.items():
        before = partitions[index]
        if state != before.state(state.controller_epoch):
            path = PartitionStateNode.path(topic.name, index)
            ops.append(Set(path, state.encode(), before.version))
        partitions[index] = partition
    node = topic_node(replace(topic, partitions=tuple(partitions)))
    return [
        *topic.guards,
        Set(TopicNode.path(topic.name), node.encode(), topic.version),
        *ops,
    ]


def _move(before: PartitionInfo, after: PartitionInfo, view: View, rules: TopicRules) -> Move:
    state = before.state(view.controller_epoch)
    if before.version < 0 or set(before.replicas) == set(after.replicas):
        return Move(after, state)
    state = moved(
        state,
        view.preference(after.replicas),
        view.electable,
        view.controller_epoch,
        wanted=rules.wanted(len(after.replicas)),
    )
    held = any((before.isr, before.elr)) or before.last_in_sync != NO_LEADER
    if held and not (state.isr or state.elr or state.last_in_sync in after.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "none of these replicas has the records",
        )
    return Move(after, state)


def _check(target: Sequence[int], view: View) -> None:
    why = sharing(target, view.machines)
    if not target:
        why = "a partition needs at least one replica"
    elif len(set(target)) < len(target):
        why = f"a broker is repeated: {list(target)}"
    elif unknown := sorted(set(target) - set(view.live)):
        why = f"there are no such brokers: {unknown}"
    if why:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _without(replicas: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)
