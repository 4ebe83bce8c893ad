"""Detects records that a query should have read but that no longer exist. Pure.

The rules are those of Spark's Kafka connector, and one more: a topic with a new id was deleted and
created again, and holds other records at the same offsets.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...types import TopicPartition
from .offsets import QueryOffsets
from .planning import OffsetRange


class PartitionLog(NamedTuple):
    """The current bounds of a partition: offsets from ``start`` to before ``end``."""

    topic_id: str
    start: int
    end: int


PartitionLogs = Mapping[TopicPartition, PartitionLog]


class Onward(NamedTuple):
    """Where a query continues in each existing partition, and what was lost before that."""

    positions: dict[TopicPartition, int]
    losses: list[str]


def go_on(since: QueryOffsets, logs: PartitionLogs) -> Onward:
    """Where a query continues that has read up to ``since``."""
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
    """The ranges of a batch that ends at ``end``, and what was lost of it."""
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
    """The bounds of the logs, cut to ``target``, but never below the query's position."""
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
    """The part of the chosen offsets that exists, and what is missing."""
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
        f"{_name(partition)} is new, and records before offset {log.start} were deleted before they"
        " were read"
    )


def _deleted(partition: TopicPartition, at: int, log: PartitionLog) -> str:
    return (
        f"{_name(partition)} begins at offset {log.start} now: records from offset {at} on were"
        " deleted, by retention or on request, before they were read"
    )


def _cut_off(partition: TopicPartition, at: int, log: PartitionLog) -> str:
    return (
        f"{_name(partition)} ends at offset {log.end}, before {at}: its log was truncated, or it"
        " was deleted and created again"
    )


def _recreated(partition: TopicPartition, at: int | None) -> str:
    came = "" if at is None else f", after offset {at} was reached"
    return f"topic {partition.topic} was deleted and created again{came} ({_name(partition)})"


def _gone(partition: TopicPartition, at: int) -> str:
    return (
        f"{_name(partition)} no longer exists or is no longer subscribed to; it was to be read from"
        f" offset {at} on"
    )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
