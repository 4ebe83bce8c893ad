"""Partitions move to other brokers (KIP-455): begun, replaced, cancelled, completed.

While a partition moves, its replicas are those that it shall have, and those that it had. When all
that it shall have are in sync, the others go. Every step is a new leader epoch, which makes the
leader look at its replicas anew. Pure functions of one partition.
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


class Move(NamedTuple):
    """What a partition's replicas become, and its state with them."""

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
    """Move to ``target``, the preferred leader first, instead of wherever it moves now.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    _check(target, view.live)
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
    """Leave it where it was.

    Raises:
        ApiError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT, none of those is in sync.
    """
    if not partition.is_moving:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition does not move")
    had = _without(partition.replicas, partition.adding)
    return _move(partition, replace(partition, replicas=had, adding=(), removing=()), view, rules)


def complete(partition: PartitionInfo, view: View, rules: TopicRules) -> Move | None:
    """The end of a move, if all are in sync that shall be."""
    if not partition.is_moving or not set(partition.target) <= set(partition.isr):
        return None
    done = replace(partition, replicas=partition.target, adding=(), removing=())
    return _move(partition, done, view, rules)


def writes(topic: Topic, moves: Mapping[int, Move]) -> list[Op]:
    """What carries moves of a topic's partitions out, by partition; nothing if there are none."""
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
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of these replicas has what was written"
        )
    return Move(after, state)


def _check(target: Sequence[int], live: Collection[int]) -> None:
    why = None
    if not target:
        why = "a partition needs at least one replica"
    elif len(set(target)) < len(target):
        why = f"a broker comes twice: {list(target)}"
    elif unknown := sorted(set(target) - set(live)):
        why = f"there are no such brokers: {unknown}"
    if why:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _without(replicas: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)
