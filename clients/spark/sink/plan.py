"""What remains to be published of a manifest, and in which order it is read. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from qbus.errors import QbusError
from qbus.records import BatchHeader, Buffer, read_header
from qbus.records.header import write_header

from ...batches import as_produced
from ...types import TopicPartition
from .history import StagingLost
from .manifest import Manifest, Numbered, ProducerIdentity

_FAR = 10_000
"""Batches that are at least so many offsets apart are read by separate requests."""


class TargetChanged(QbusError):  # noqa: N818 - what happened
    """A target topic has changed since the manifest was written."""


class Bounds(NamedTuple):
    """The current bounds of a partition, and its topic's id."""

    topic_id: str
    start: int
    end: int


class BatchRun(NamedTuple):
    """Batches that are read together, from offset ``start`` to before ``end``."""

    start: int
    end: int
    batches: Mapping[int, Numbered]


def scan_range(manifest: Manifest, target: TopicPartition, now: Bounds) -> tuple[int, int]:
    """The offsets of ``target`` that batches of ``manifest`` may be at.

    They begin at the end of the log before publishing; or at the log's start, if the log was
    truncated or the topic was created again.
    """
    end = manifest.ends[target]
    is_same = manifest.topic_ids.get(target.topic) == now.topic_id
    start = end if is_same and end <= now.end else now.start
    return max(start, now.start), now.end


def remaining(
    manifest: Manifest, found: Mapping[TopicPartition, Collection[int]]
) -> list[Numbered]:
    """The batches that are not published yet.

    found: the last sequences of the batches that the targets hold: a batch in which some records
    are delayed is stored in parts, of which the last may be missing. A partition is published in
    order: all batches before a found one were published, even if retention or compaction has
    removed them since.
    """
    by_target: dict[TopicPartition, list[Numbered]] = {}
    for batch in manifest.numbered():
        by_target.setdefault(batch.staged.target, []).append(batch)
    left = []
    for target, batches in by_target.items():
        there = found.get(target, ())
        done = [number for number, one in enumerate(batches, 1) if one.last_sequence in there]
        left += batches[max(done, default=0) :]
    return left


def streams(batches: Iterable[Numbered]) -> list[list[tuple[int, list[BatchRun]]]]:
    """The runs to read from each staging partition: lists that can be read at the same time.

    A target's batches come from one staging partition, unless the staging topic has grown since:
    then everything is one list, read in order.
    """
    by_partition: dict[int, list[Numbered]] = {}
    sources: dict[TopicPartition, set[int]] = {}
    for batch in batches:
        by_partition.setdefault(batch.staged.partition, []).append(batch)
        sources.setdefault(batch.staged.target, set()).add(batch.staged.partition)
    reads = [(partition, _runs(by_partition[partition])) for partition in sorted(by_partition)]
    if any(len(found) > 1 for found in sources.values()):
        return [reads]
    return [[read] for read in reads]


def _runs(batches: Iterable[Numbered]) -> list[BatchRun]:
    runs: list[list[Numbered]] = []
    reached = -_FAR
    for batch in sorted(batches, key=lambda each: each.staged.offset):
        if batch.staged.offset - reached >= _FAR:
            runs.append([])
        runs[-1].append(batch)
        reached = batch.staged.offset + batch.staged.records
    return [
        BatchRun(
            run[0].staged.offset,
            run[-1].staged.offset + run[-1].staged.records,
            {batch.staged.offset: batch for batch in run},
        )
        for run in runs
    ]


def as_published(
    producer: ProducerIdentity, batch: Numbered, header: BatchHeader, stored: Buffer
) -> bytearray:
    """The bytes of a staged batch for its target.

    Raises :class:`~qbus.clients.spark.sink.history.StagingLost` if another batch was stored there.
    """
    staged = batch.staged
    if header.records_count != staged.records or header.is_log_append_time:
        raise StagingLost(
            f"offset {staged.offset} of the staging topic's partition {staged.partition} does not"
            " hold what was staged there. Check whether the topic was created again, or its"
            " message.timestamp.type changed"
        )
    copy = as_produced(stored)
    write_header(
        copy,
        read_header(copy)._replace(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=batch.sequence,
            base_timestamp=header.base_timestamp - staged.shift,
            max_timestamp=header.max_timestamp - staged.shift,
        ),
    )
    return copy
