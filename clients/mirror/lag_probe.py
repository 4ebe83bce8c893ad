"""The lag of a target behind a source, measured at the two clusters themselves.

That needs no process of the mirror: a partition goes on where the target's log ends; if the target
is no Qbus, the last record there tells it.
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
from .checks import takes_mirrors
from .config import LinkConfig
from .fallback.lag_probe import probe_reproduced
from .link import stopped_by
from .partitions import MirroredPartition
from .routes import TopicRoute, plan
from .start_offsets import StartOffsetResolver, headers_at
from .status import LinkStatus, PartitionState, PartitionStatus
from .topics import read_topics

_DATED = 64
"""The most partitions, those furthest behind, whose lag is measured in seconds."""


class LagProbe:
    """Measures the lag of one link from outside."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster, clock: Clock) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._clock = clock
        self._takes_mirrors: bool | None = None

    async def measure(self) -> LinkStatus:
        """Return the status of every partition; raises :class:`~qbus.errors.ApiError`."""
        config = self._config
        if self._takes_mirrors is None:
            self._takes_mirrors = await takes_mirrors(self._target, config.source)
        if self._takes_mirrors:
            found = await self._mirrored()
        else:
            found = await probe_reproduced(config, self._source, self._target)
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
        routes = (*planned.mirror, *planned.take_over)
        partitions = [
            mirrored
            for route in routes
            for mirrored in _partitions(
                route, min(route.partitions, target[route.target_topic].partitions)
            )
        ]
        missing = [
            *(status for route in planned.create for status in _missing(route, 0)),
            *(
                status
                for route in routes
                for status in _missing(route, target[route.target_topic].partitions)
            ),
        ]
        stopped = [status for obstacle in planned.obstacles for status in stopped_by(obstacle)]
        return await self._resolved(partitions) + missing + stopped

    async def _resolved(self, partitions: Iterable[MirroredPartition]) -> list[PartitionStatus]:
        """Return the status of each partition as a mirror that starts now would find it."""
        now_ms = self._clock.time_ms()
        found = []
        for mirrored, outcome in (
            await StartOffsetResolver(self._source, self._target).resolve(partitions)
        ).items():
            if isinstance(outcome, ApiError):
                mirrored.failed(outcome, now=0.0)
            else:
                mirrored.resolved(*outcome)
            found.append(mirrored.status(now_ms))
        return found

    async def _with_bytes(self, found: Iterable[PartitionStatus]) -> list[PartitionStatus]:
        """Estimate the lag in bytes by the size of the source's logs."""
        sizes = await self._sizes()
        return [replace(status, lag_bytes=_lag_bytes(status, sizes)) for status in found]

    async def _sizes(self) -> dict[TopicPartition, int]:
        """Return the size of each partition at the source, in bytes, as far as its brokers tell."""
        try:
            dirs = await Admin.over(self._source).describe_log_dirs()
        except PartialFailure as error:
            dirs = [log_dir for log_dirs in error.results.values() for log_dir in log_dirs]
        except ApiError:  # not allowed, perhaps
            return {}
        sizes: dict[TopicPartition, int] = {}
        for log_dir in dirs:
            for replica in log_dir.replicas:
                where = TopicPartition(replica.topic, replica.partition)
                sizes[where] = max(sizes.get(where, 0), replica.size)
        return sizes

    async def _with_ages(self, found: list[PartitionStatus]) -> list[PartitionStatus]:
        """Measure the age of the oldest record that the target lacks."""
        behind = [status for status in found if status.lag_records]
        behind.sort(key=lambda status: -(status.lag_records or 0))
        first = {
            _where(status): max(status.target_end, status.source_start)
            for status in behind[:_DATED]
        }
        headers = await headers_at(self._source, first)
        return [
            replace(status, lag_seconds=0.0)
            if status.lag_records == 0
            else replace(status, lag_seconds=self._age(headers.get(_where(status))))
            for status in found
        ]

    def _age(self, header: BatchHeader | ApiError | None) -> float | None:
        if header is None or isinstance(header, ApiError):
            return None
        written = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return max(self._clock.time_ms() - written, 0) / 1000


def _where(status: PartitionStatus) -> TopicPartition:
    return TopicPartition(status.topic, status.partition)


def _partitions(route: TopicRoute, partitions: int) -> list[MirroredPartition]:
    return [
        MirroredPartition(
            TopicPartition(route.topic, index),
            TopicPartition(route.target_topic, index),
            route.provenance,
        )
        for index in range(partitions)
    ]


def _missing(route: TopicRoute, existing: int) -> list[PartitionStatus]:
    """Return the status of the partitions that the target does not have yet."""
    return [
        PartitionStatus(
            topic=route.topic,
            target_topic=route.target_topic,
            partition=index,
            state=PartitionState.WAITING,
            error="the target does not have it yet",
        )
        for index in range(existing, route.partitions)
    ]


def _lag_bytes(status: PartitionStatus, sizes: dict[TopicPartition, int]) -> int | None:
    lag = status.lag_records
    if lag is None:
        return None
    if lag == 0:
        return 0
    size, held = sizes.get(_where(status)), status.source_end - status.source_start
    return None if size is None or held <= 0 else size * min(lag, held) // held
