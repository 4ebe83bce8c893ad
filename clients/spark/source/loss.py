"""What a query should have read and cannot any more. Pure.

The rules are those of Spark's Kafka connector, and one that needs the ids of topics: one that was
deleted and created again holds other records under the same offsets.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...types import TopicPartition
from .offsets import QueryOffsets
from .planning import OffsetRange


class PartitionLog(NamedTuple):
    """What a partition holds now: the offsets from ``start`` to before ``end``."""

    topic_id: str
    start: int
    end: int


PartitionLogs = Mapping[TopicPartition, PartitionLog]


class Onward(NamedTuple):
    """Where to go on in each partition that there is, and what was lost before that."""

    positions: dict[TopicPartition, int]
    losses: list[str]


def go_on(since: QueryOffsets, logs: PartitionLogs) -> Onward:
    """Where a query goes on that has come as far as ``since``."""
    losses = [_gone(partition, at) for partition, at in _missing(since, logs)]
    positions = {}
    for partition, log in sorted(logs.items()):
        at = since.positions.get(partition)
        if at is not None and since.ids.get(partition.topic) == log.topic_id:
            positions[partition], loss = _within(partition, at, log)
        elif at is None and since.ids.get(partition.topic) in {None, log.topic_id}:
            positions[partition], loss = _appeared(partition, log)
        else:
            positions[partition], loss = log.start, _recreated(partition, at)
        losses += [loss] if loss else []
    return Onward(positions, losses)


def ranges(
    begin: Onward, end: QueryOffsets, logs: PartitionLogs
) -> tuple[list[OffsetRange], list[str]]:
    """What a batch that ends at ``end`` reads of what there is now, and what was lost of it."""
    found, losses = [], list(begin.losses)
    for partition, until in sorted(end.positions.items()):
        log = logs.get(partition)
        topic_id = end.ids[partition.topic]
        if log is None:
            losses.append(_gone(partition, until))
            continue
        if log.topic_id != topic_id:
            losses.append(_recreated(partition, until))
            continue
        if until > log.end:
            losses.append(_cut_off(partition, until, log))
        start, stop = begin.positions[partition], min(until, log.end)
        if start < stop:
            found.append(OffsetRange(*partition, start, stop, topic_id))
    return found, losses


def up_to(
    target: PartitionLogs, since: QueryOffsets, onward: Onward, logs: PartitionLogs
) -> dict[TopicPartition, PartitionLog]:
    """What there is now, without what came after ``target``; no query goes back, or forgets."""
    bounded = {}
    for partition, log in logs.items():
        at, bound = onward.positions[partition], target.get(partition)
        if bound is not None and bound.topic_id == log.topic_id:
            bounded[partition] = log._replace(end=max(min(log.end, bound.end), at))
        elif partition in since.positions:
            bounded[partition] = log._replace(end=at)
    return bounded


def fixed_range(
    partition: TopicPartition, start: int, stop: int, log: PartitionLog
) -> tuple[OffsetRange, list[str]]:
    """What a batch over chosen offsets reads of what there is, and which of them are not there."""
    losses = []
    if start < log.start:
        losses.append(_deleted(partition, start, log))
    if max(start, stop) > log.end:
        losses.append(_cut_off(partition, max(start, stop), log))
    begin, end = max(start, log.start), min(stop, log.end)
    return OffsetRange(*partition, begin, max(begin, end), log.topic_id), losses


def _missing(since: QueryOffsets, logs: PartitionLogs) -> list[tuple[TopicPartition, int]]:
    return sorted(item for item in since.positions.items() if item[0] not in logs)


def _within(partition: TopicPartition, at: int, log: PartitionLog) -> tuple[int, str | None]:
    if at < log.start:
        return log.start, _deleted(partition, at, log)
    if at > log.end:
        return log.end, _cut_off(partition, at, log)
    return at, None


def _appeared(partition: TopicPartition, log: PartitionLog) -> tuple[int, str | None]:
    if log.start == 0:
        return 0, None
    return log.start, (
        f"{_name(partition)} is new, and what was before offset {log.start} is deleted already"
    )


def _deleted(partition: TopicPartition, at: int, log: PartitionLog) -> str:
    return (
        f"{_name(partition)} begins at offset {log.start} now: records from {at} on were deleted,"
        " by retention or on request, before they were read"
    )


def _cut_off(partition: TopicPartition, at: int, log: PartitionLog) -> str:
    return (
        f"{_name(partition)} ends at offset {log.end}, before {at}: its log was cut, or it was"
        " deleted and created again"
    )


def _recreated(partition: TopicPartition, at: int | None) -> str:
    came = "" if at is None else f", after offset {at} was reached"
    return f"topic {partition.topic} was deleted and created again{came} ({_name(partition)})"


def _gone(partition: TopicPartition, at: int) -> str:
    return (
        f"{_name(partition)} is not there any more, or not subscribed to; it was to be read from"
        f" offset {at} on"
    )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
