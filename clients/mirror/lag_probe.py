"""How far a target is behind a source, asked of the two clusters themselves.

No process of the mirror is needed for that, and none has to be believed: where a copy goes on is
where the target's log ends, or what its last record says where the target is no Qbus.
"""

from collections.abc import Iterable
from dataclasses import replace

from qbus.clock import Clock
from qbus.errors import ApiError
from qbus.records import BatchHeader

from ..admin import Admin
from ..errors import PartialFailure
from ..net.cluster import Cluster
from ..types import TopicPartition
from .config import LinkConfig
from .fallback.survey import survey_reproduced
from .link import stopped_by
from .partitions import Copy
from .routes import Way, plan
from .start_offsets import StartOffsetResolver, headers_at
from .status import LinkStatus, PartitionState, PartitionStatus
from .target import takes_mirrors
from .topics import read_topics

_DATED = 64
"""Partitions, those furthest behind, of which it is found out how old what they lack is."""


class LagProbe:
    """Looks at a link from outside."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster, clock: Clock) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._clock = clock
        self._takes_mirrors: bool | None = None

    async def look(self) -> LinkStatus:
        """How far every partition is; raises :class:`~qbus.errors.ApiError`."""
        config = self._config
        if self._takes_mirrors is None:
            self._takes_mirrors = await takes_mirrors(self._target, config.source)
        if self._takes_mirrors:
            found = await self._mirrored()
        else:
            found = await survey_reproduced(config, self._source, self._target)
        found = await self._with_ages(await self._with_bytes(found))
        return LinkStatus(
            name=config.name,
            source=config.source,
            target=config.target,
            partitions=tuple(found),
            reproduces=not self._takes_mirrors,
        )

    async def _mirrored(self) -> list[PartitionStatus]:
        source = await read_topics(self._source, self._config.selection.__contains__)
        target = await read_topics(self._target)
        planned = plan(self._config, source, target)
        ways = (*planned.mirror, *planned.take_over)
        copies = [
            copy
            for way in ways
            for copy in _copies(way, min(way.partitions, target[way.target_topic].partitions))
        ]
        missing = [
            *(status for way in planned.create for status in _missing(way, 0)),
            *(
                status
                for way in ways
                for status in _missing(way, target[way.target_topic].partitions)
            ),
        ]
        stopped = [status for obstacle in planned.obstacles for status in stopped_by(obstacle)]
        return await self._placed(copies) + missing + stopped

    async def _placed(self, copies: Iterable[Copy]) -> list[PartitionStatus]:
        """Where each is, as a mirror would find it that begins now."""
        now_ms = self._clock.time_ms()
        found = []
        for copy, outcome in (
            await StartOffsetResolver(self._source, self._target).place(copies)
        ).items():
            if isinstance(outcome, ApiError):
                copy.failed(outcome, now=0.0)
            else:
                copy.placed(*outcome)
            found.append(copy.status(now_ms))
        return found

    async def _with_bytes(self, found: Iterable[PartitionStatus]) -> list[PartitionStatus]:
        """Estimate the lag in bytes by the size of the source's logs."""
        sizes = await self._sizes()
        return [replace(one, lag_bytes=_lag_bytes(one, sizes)) for one in found]

    async def _sizes(self) -> dict[TopicPartition, int]:
        """The bytes of each partition at the source, as far as its brokers tell."""
        try:
            dirs = await Admin.over(self._source).describe_log_dirs()
        except PartialFailure as error:
            dirs = [one for of_broker in error.results.values() for one in of_broker]
        except ApiError:  # not allowed, perhaps
            return {}
        sizes: dict[TopicPartition, int] = {}
        for log_dir in dirs:
            for replica in log_dir.replicas:
                where = TopicPartition(replica.topic, replica.partition)
                sizes[where] = max(sizes.get(where, 0), replica.size)
        return sizes

    async def _with_ages(self, found: list[PartitionStatus]) -> list[PartitionStatus]:
        """Find out how old the oldest record is that the target lacks."""
        behind = [one for one in found if one.lag_records]
        behind.sort(key=lambda one: -(one.lag_records or 0))
        first = {
            TopicPartition(one.topic, one.partition): max(one.target_end, one.source_start)
            for one in behind[:_DATED]
        }
        headers = await headers_at(self._source, first)
        return [
            replace(one, lag_seconds=0.0)
            if one.lag_records == 0
            else replace(one, lag_seconds=self._age(headers.get(_where(one))))
            for one in found
        ]

    def _age(self, header: BatchHeader | ApiError | None) -> float | None:
        if header is None or isinstance(header, ApiError):
            return None
        written = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return max(self._clock.time_ms() - written, 0) / 1000


def _where(status: PartitionStatus) -> TopicPartition:
    return TopicPartition(status.topic, status.partition)


def _copies(way: Way, partitions: int) -> list[Copy]:
    return [
        Copy(
            TopicPartition(way.topic, index),
            TopicPartition(way.target_topic, index),
            way.provenance,
        )
        for index in range(partitions)
    ]


def _missing(way: Way, existing: int) -> list[PartitionStatus]:
    """Those that the target is still to get."""
    return [
        PartitionStatus(
            topic=way.topic,
            target_topic=way.target_topic,
            partition=index,
            state=PartitionState.WAITING,
            error="the target does not have it yet",
        )
        for index in range(existing, way.partitions)
    ]


def _lag_bytes(status: PartitionStatus, sizes: dict[TopicPartition, int]) -> int | None:
    lag = status.lag_records
    if lag is None:
        return None
    if lag == 0:
        return 0
    size, held = sizes.get(_where(status)), status.source_end - status.source_start
    return None if size is None or held <= 0 else size * min(lag, held) // held
