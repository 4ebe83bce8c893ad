"""Finding out where copies go on: from where both logs end, and from the last batches before."""

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, CorruptBatch, read_header

from ..batches import FetchLimits, fetch_batches
from ..batches.fetch import leader_epoch
from ..errors import PartialFailure
from ..net.cluster import Cluster
from ..net.retry import Outcomes
from ..net.routing import asking_leaders
from ..offsets import list_offsets
from ..types import EARLIEST, LATEST, TopicPartition
from .identity import check_same_topic, ids_of
from .partitions import Copy
from .positions import Ends, Place, parted, place
from .status import Trouble

_PATIENCE = 5.0
"""Seconds in which leaders are found; who has none by then is asked for again later."""
_FETCH_BYTES = 16 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024

Placement = tuple[Place, Ends]


class StartOffsetResolver:
    """Asks both clusters."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target

    async def place(self, copies: Iterable[Copy]) -> Outcomes[Copy, Placement]:
        """Where each copy goes on, and the ends that it was told from; or why nobody knows."""
        wanted = list(copies)
        sources, targets = [copy.source for copy in wanted], [copy.target for copy in wanted]
        source_starts, source_ends, target_starts, target_ends = await asyncio.gather(
            _offsets(self._source, sources, EARLIEST),
            _offsets(self._source, sources, LATEST),
            _offsets(self._target, targets, EARLIEST),
            _offsets(self._target, targets, LATEST),
        )
        outcomes: Outcomes[Copy, Placement] = {}
        found: dict[Copy, Ends] = {}
        for copy in wanted:
            ends = (
                source_starts[copy.source],
                source_ends[copy.source],
                target_starts[copy.target],
                target_ends[copy.target],
            )
            try:
                known = [_known(end) for end in ends]
                check_same_topic(self._source, copy)
            except ApiError as error:
                outcomes[copy] = error
            else:
                epoch = leader_epoch(self._source, copy.source)
                found[copy] = Ends(*known)._replace(source_epoch=epoch)
        return outcomes | await self._compare(found)

    async def _compare(self, found: Mapping[Copy, Ends]) -> Outcomes[Copy, Placement]:
        """See that the last batch at the target is the one that the source has there."""
        shared = {copy: ends for copy, ends in found.items() if ends.overlap}
        source, target = await asyncio.gather(
            headers_at(
                self._source,
                {c.source: e.target_end - 1 for c, e in shared.items()},
                ids_of(shared),
            ),
            headers_at(self._target, {c.target: e.target_end - 1 for c, e in shared.items()}),
        )
        outcomes: Outcomes[Copy, Placement] = {}
        for copy, ends in found.items():
            outcomes[copy] = place(ends), ends
            if copy not in shared:
                continue
            here, there = source[copy.source], target[copy.target]
            if isinstance(here, ApiError) or isinstance(there, ApiError):
                outcomes[copy] = here if isinstance(here, ApiError) else there  # type: ignore[assignment]
            elif reason := parted(here, there):
                at = ends.target_end
                stopped = Place(at, at, Trouble.SOURCE_LOST_DATA, reason, is_stopped=True)
                outcomes[copy] = stopped, ends
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
        found = await list_offsets(cluster, dict.fromkeys(wanted, which), timeout=_PATIENCE)
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
    """The header of the first batch from each offset on; None: there is none any more.

    ``topic_ids`` as :func:`~qbus.clients.batches.fetch_batches` has them.
    """
    outcomes: Outcomes[TopicPartition, BatchHeader | None] = {}
    left = dict(offsets)
    while left:
        found = await _first_headers(cluster, left, topic_ids)
        outcomes |= found
        if not found:  # of those that are left, there is nothing to be had
            return outcomes | dict.fromkeys(left)
        left = {partition: at for partition, at in left.items() if partition not in found}
    return outcomes


async def _first_headers(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID] | None,
) -> Outcomes[TopicPartition, BatchHeader | None]:
    """As many as one answer of each leader has room for."""

    async def ask(
        node: int, led: list[TopicPartition]
    ) -> Outcomes[TopicPartition, BatchHeader | None]:
        limits = FetchLimits(_FETCH_BYTES, _PARTITION_BYTES)
        wanted = {one: offsets[one] for one in led}
        answers = await fetch_batches(cluster, node, wanted, limits, topic_ids=topic_ids)
        return {
            partition: answer if isinstance(answer, ApiError) else _header(answer.records)
            for partition, answer in answers.items()
        }

    outcomes: Outcomes[TopicPartition, BatchHeader | None] = {}
    try:
        found = await asking_leaders(cluster, offsets, ask, _PATIENCE)
    except PartialFailure as failure:
        found = dict(failure.results)
        outcomes |= failure.errors
    except ApiError as error:
        return dict.fromkeys(offsets, error)
    return outcomes | {one: header for one, header in found.items() if header is not None}


def _header(records: memoryview) -> BatchHeader | ApiError | None:
    if not records:
        return None
    try:
        return read_header(records)
    except CorruptBatch as error:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))
