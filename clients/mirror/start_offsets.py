"""Resolving where partitions go on: by where both logs end, and by the last batches before."""

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, CorruptBatch, read_header

from ..batches import FetchLimits, fetch_batches
from ..errors import PartialFailure
from ..net.cluster import Cluster
from ..net.retry import Outcomes
from ..net.routing import ask_leaders
from ..offsets import list_offsets
from ..types import EARLIEST, LATEST, TopicPartition
from .checks import check_same_topic, ids_of
from .log_comparison import LogBounds, StartOffset, diverged, start_offset
from .partitions import MirroredPartition
from .status import Trouble

_PATIENCE = 5.0
"""Seconds to find leaders in; partitions without one by then are tried again later."""
_FETCH_BYTES = 16 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024

Placement = tuple[StartOffset, LogBounds]


class StartOffsetResolver:
    """Resolves start offsets by asking both clusters."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target

    async def resolve(
        self, partitions: Iterable[MirroredPartition]
    ) -> Outcomes[MirroredPartition, Placement]:
        """Return where each partition goes on, with the bounds of its logs; or the error."""
        wanted = list(partitions)
        sources, targets = (
            [mirrored.source for mirrored in wanted],
            [mirrored.target for mirrored in wanted],
        )
        source_starts, source_ends, target_starts, target_ends = await asyncio.gather(
            _offsets(self._source, sources, EARLIEST),
            _offsets(self._source, sources, LATEST),
            _offsets(self._target, targets, EARLIEST),
            _offsets(self._target, targets, LATEST),
        )
        outcomes: Outcomes[MirroredPartition, Placement] = {}
        found: dict[MirroredPartition, LogBounds] = {}
        for mirrored in wanted:
            ends = (
                source_starts[mirrored.source],
                source_ends[mirrored.source],
                target_starts[mirrored.target],
                target_ends[mirrored.target],
            )
            try:
                known = [_known(end) for end in ends]
                check_same_topic(self._source, mirrored)
            except ApiError as error:
                outcomes[mirrored] = error
            else:
                epoch = self._source.metadata.leader_epoch(*mirrored.source)
                found[mirrored] = LogBounds(*known)._replace(source_epoch=epoch)
        return outcomes | await self._compare(found)

    async def _compare(
        self, found: Mapping[MirroredPartition, LogBounds]
    ) -> Outcomes[MirroredPartition, Placement]:
        """Compare the last batch at the target with the source's batch at that offset."""
        shared = {mirrored: ends for mirrored, ends in found.items() if ends.overlap}
        source, target = await asyncio.gather(
            headers_at(
                self._source,
                {c.source: e.target_end - 1 for c, e in shared.items()},
                ids_of(shared),
            ),
            headers_at(self._target, {c.target: e.target_end - 1 for c, e in shared.items()}),
        )
        outcomes: Outcomes[MirroredPartition, Placement] = {}
        for mirrored, ends in found.items():
            outcomes[mirrored] = start_offset(ends), ends
            if mirrored not in shared:
                continue
            here, there = source[mirrored.source], target[mirrored.target]
            if isinstance(here, ApiError) or isinstance(there, ApiError):
                outcomes[mirrored] = here if isinstance(here, ApiError) else there  # type: ignore[assignment]
            elif reason := diverged(here, there):
                at = ends.target_end
                stopped = StartOffset(at, at, Trouble.SOURCE_LOST_DATA, reason, is_stopped=True)
                outcomes[mirrored] = stopped, ends
        return outcomes


def _known(end: int | ApiError) -> int:
    if isinstance(end, ApiError):
        raise end
    return end


async def _offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], which: int
) -> Outcomes[TopicPartition, int]:
    wanted = list(partitions)
    outcomes: Outcomes[TopicPartition, int] = {}
    try:
        found = await list_offsets(
            cluster, dict.fromkeys(wanted, which), timeout=_PATIENCE, hidden=True
        )
    except PartialFailure as failure:
        found = dict(failure.results)
        outcomes |= failure.errors
    except ApiError as error:
        return dict.fromkeys(wanted, error)
    return outcomes | {partition: at.offset for partition, at in found.items()}


async def headers_at(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID] | None = None,
) -> Outcomes[TopicPartition, BatchHeader | None]:
    """Return the header of the first batch from each offset on; None: it was removed.

    ``topic_ids`` as in :func:`~qbus.clients.batches.fetch_batches`.
    """
    outcomes: Outcomes[TopicPartition, BatchHeader | None] = {}
    left = dict(offsets)
    while left:
        found = await _first_headers(cluster, left, topic_ids)
        outcomes |= found
        if not found:  # the remaining offsets have no batch any more
            return outcomes | dict.fromkeys(left)
        left = {partition: at for partition, at in left.items() if partition not in found}
    return outcomes


async def _first_headers(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID] | None,
) -> Outcomes[TopicPartition, BatchHeader | None]:
    """Return as many headers as one response of each leader has room for."""

    async def ask(
        node: int, led: list[TopicPartition]
    ) -> Outcomes[TopicPartition, BatchHeader | None]:
        limits = FetchLimits(_FETCH_BYTES, _PARTITION_BYTES)
        wanted = {partition: offsets[partition] for partition in led}
        answers = await fetch_batches(
            cluster, node, wanted, limits, topic_ids=topic_ids, hidden=True
        )
        return {
            partition: answer if isinstance(answer, ApiError) else _header(answer.records)
            for partition, answer in answers.items()
        }

    outcomes: Outcomes[TopicPartition, BatchHeader | None] = {}
    try:
        found = await ask_leaders(cluster, offsets, ask, _PATIENCE)
    except PartialFailure as failure:
        found = dict(failure.results)
        outcomes |= failure.errors
    except ApiError as error:
        return dict.fromkeys(offsets, error)
    return outcomes | {
        partition: header for partition, header in found.items() if header is not None
    }


def _header(records: memoryview) -> BatchHeader | ApiError | None:
    if not records:
        return None
    try:
        return read_header(records)
    except CorruptBatch as error:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))
