"""Publishes manifests: copies staged batches to their targets, undecoded, each once."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import Buffer

from ...batches import find_producer, read_batches, store_batches
from ...errors import PartialFailure
from ...net.cluster import Cluster
from ...net.retry import retrying
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, TopicPartition
from .history import StagingLost
from .manifest import Manifest, Numbered
from .plan import BatchRun, Bounds, TargetChanged, as_published, remaining, scan_range, streams

_log = logging.getLogger(__name__)

_ROUND_BYTES = 8 * 1024 * 1024
_DISPLACED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_AT_A_TIME = 8


class Publisher:
    """Copies the batches of manifests from the staging topic to their targets."""

    def __init__(self, cluster: Cluster, staging: str, patience: float) -> None:
        """``patience``: the most seconds to store one batch."""
        self._cluster = cluster
        self._staging = staging
        self._patience = patience

    async def publish(self, manifest: Manifest, *, is_fresh: bool) -> None:
        """Publish all batches of ``manifest``; ``is_fresh``: none is published yet.

        Raises :class:`~qbus.errors.ApiError`, StagingLost or TargetChanged. Batches published until
        then remain, and the next attempt continues after them.
        """
        left = list(manifest.numbered()) if is_fresh else await self._left(manifest)
        while left:
            try:
                await self._copy(manifest, left)
            except ApiError as error:
                if error.code not in _DISPLACED:
                    raise _explained(manifest, error) from error
                before, left = left, await self._left(manifest)
                if len(left) == len(before):  # no other driver publishes it either
                    raise TargetChanged(
                        f"batch {manifest.batch} of query {manifest.query} cannot be published:"
                        f" {error}. Its topic has lost acknowledged records. To write the batch"
                        f" again, delete the group of the query; then {len(left)} of"
                        f" {len(manifest.staged)} record batches are written for the first time,"
                        " and the others twice"
                    ) from error
            else:
                return

    async def _left(self, manifest: Manifest) -> list[Numbered]:
        """The batches that the targets do not hold yet."""
        bounds = await self._bounds(manifest)
        turns = asyncio.Semaphore(_AT_A_TIME)

        async def scan(target: TopicPartition) -> set[int]:
            start, end = scan_range(manifest, target, bounds[target])
            producer = manifest.producer
            async with turns:
                headers = await find_producer(self._cluster, target, start, end, producer.id)
            return {each.last_sequence for each in headers if each.producer_epoch == producer.epoch}

        found = await asyncio.gather(*map(scan, manifest.targets))
        left = remaining(manifest, dict(zip(manifest.targets, found, strict=True)))
        _log.info(
            "batch %d of query %s: %d of %d record batches remain to be published",
            manifest.batch,
            manifest.query,
            len(left),
            len(manifest.staged),
        )
        return left

    async def _bounds(self, manifest: Manifest) -> dict[TopicPartition, Bounds]:
        targets = manifest.targets
        topics = {target.topic for target in targets}
        try:
            self._cluster.metadata.forget(topics)
            starts, ends = await asyncio.gather(
                list_offsets(self._cluster, dict.fromkeys(targets, EARLIEST)),
                list_offsets(self._cluster, dict.fromkeys(targets, LATEST)),
            )
            ids = {name: str(self._cluster.metadata.topic(name).topic_id) for name in topics}
        except ApiError as error:
            raise _explained(manifest, error) from error
        return {
            target: Bounds(ids[target.topic], starts[target].offset, ends[target].offset)
            for target in targets
        }

    async def _copy(self, manifest: Manifest, batches: Sequence[Numbered]) -> None:
        async def copy_in_order(reads: list[tuple[int, list[BatchRun]]]) -> None:
            for partition, runs in reads:
                for run in runs:
                    await self._copy_run(manifest, partition, run)

        work = [asyncio.ensure_future(copy_in_order(reads)) for reads in streams(batches)]
        try:
            await asyncio.gather(*work)
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _copy_run(self, manifest: Manifest, partition: int, run: BatchRun) -> None:
        """Copy a run: batches, one for each target, are stored while the next ones are read."""
        where = TopicPartition(self._staging, partition)
        storing = asyncio.ensure_future(asyncio.sleep(0))
        waiting: dict[TopicPartition, Buffer] = {}
        missing = set(run.batches)
        size = 0
        try:
            async for header, batch in read_batches(self._cluster, where, run.start, run.end):
                numbered = run.batches.get(header.base_offset)
                if numbered is None:
                    continue
                target = numbered.staged.target
                if target in waiting or size > _ROUND_BYTES:
                    await storing
                    storing = asyncio.ensure_future(self._store(waiting))
                    waiting, size = {}, 0
                waiting[target] = as_published(manifest.producer, numbered, header, batch)
                size += len(batch)
                missing.discard(header.base_offset)
            await storing
            await self._store(waiting)
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._lost(manifest, where, run.start) from error
            raise
        finally:
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
        if missing:
            raise self._lost(manifest, where, min(missing))

    async def _store(self, batches: Mapping[TopicPartition, Buffer]) -> None:
        async def attempt() -> None:
            await store_batches(self._cluster, batches)

        if batches:
            final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            subject = "the partitions of the sink"
            await retrying(self._cluster, subject, attempt, self._patience, final=final)

    def _lost(self, manifest: Manifest, where: TopicPartition, offset: int) -> StagingLost:
        return StagingLost(
            f"offset {offset} of {where.topic}-{where.partition}, where rows of batch"
            f" {manifest.batch} were staged, no longer exists: retention.ms of {where.topic}"
            " must exceed the time that a query may stop for"
        )


def is_gone(error: ApiError) -> bool:
    """Whether a requested topic or partition does not exist."""
    errors = error.errors.values() if isinstance(error, PartialFailure) else [error]
    return any(each.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in errors)


def _explained(manifest: Manifest, error: ApiError) -> QbusError:
    """The error with a remedy, where there is one."""
    if not is_gone(error):
        return error
    return TargetChanged(
        f"{error}: a topic or partition that batch {manifest.batch} of query {manifest.query} is"
        f" published to no longer exists. Create {', '.join(sorted(manifest.topic_ids))} again"
        " with as many partitions, and start the query again; it continues"
    )
