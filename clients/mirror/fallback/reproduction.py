"""A link to a target that does not keep offsets: it consumes and produces.

The processes of a link are a consumer group at the source. Their commits show the progress of the
link; a partition goes on behind the origin of its last record at the target.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from qbus.clock import SystemClock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.token_bucket import RateLimit

from ...admin import Admin
from ...errors import PartialFailure
from ...net.cluster import Cluster
from ...offsets import list_offsets
from ...producer.delivery import BulkDelivery
from ...types import EARLIEST, LATEST, OffsetAndMetadata, PartitionRecords, TopicPartition
from ..config import LinkConfig
from ..glance import Glance
from ..routes import TopicRoute
from ..status import GroupsStatus, LinkStatus
from .clients import Clients
from .partition import ReproducedPartition
from .resuming import find_resume
from .stamp import Stamp, origin_of, stamped
from .topics import prepare

_log = logging.getLogger(__name__)

_POLL_S = 0.2
_UPDATE_S = 1.0
_NO_GROUPS = "group offsets are not synced: records have other offsets at a target that is no Qbus"


class Reproduction:
    """Runs one link to a target that is no Qbus; used like :class:`.MirrorLink`."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._glance = Glance(source, config.selection)
        self._admin = Admin.over(source)
        self._clients = Clients(config, self._assigned, self._revoked)
        self._clock = SystemClock()
        self._rate_limit = RateLimit(config.rate_limit_bytes, self._clock.monotonic())
        self._routes: dict[str, TopicRoute] = {}
        self._partitions: dict[TopicPartition, ReproducedPartition] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._records = 0
        self._bytes = 0

    def status(self) -> LinkStatus:
        """Return the status of the link."""
        config, now_ms = self._config, self._clock.time_ms()
        return LinkStatus(
            name=config.name,
            source=config.source,
            target=config.target,
            partitions=tuple(
                reproduced.status(now_ms) for _, reproduced in sorted(self._partitions.items())
            ),
            records=self._records,
            bytes=self._bytes,
            groups=GroupsStatus(error=_NO_GROUPS if config.groups.enabled else None),
            reproduces=True,
        )

    async def run(self) -> None:
        """Mirror until cancelled; then drain what was sent, and leave the group.

        Raises :class:`~qbus.errors.QbusError` if something fails; another run goes on behind what
        the target has.
        """
        config = self._config
        _log.warning(
            "link %s: %s is no Qbus: records are reproduced at new offsets, and group offsets are"
            " not synced",
            config.name,
            config.target_bootstrap,
        )
        try:
            await self._copy()
        finally:
            await self._leave()

    async def _copy(self) -> None:
        update_at = discover_at = 0.0
        while True:
            now = self._clock.monotonic()
            if now >= discover_at or await self._glance.sees_news():
                discover_at = now + self._config.topics_at_target.discovery_interval_ms / 1000
                await self._discover()
            if now >= update_at:
                update_at = now + _UPDATE_S
                await self._update()
            if not self._routes:
                await asyncio.sleep(_UPDATE_S)
                continue
            for found in await self._clients.consumer.poll(_POLL_S):
                await self._send(found)
            self._collect()
            await asyncio.sleep(self._rate_limit.wait(self._clock.monotonic()))

    async def _discover(self) -> None:
        routes = await prepare(self._config, self._source, self._target, self._glance)
        for topic, route in routes.items():
            before = self._routes.get(topic, route).provenance.topic_id
            if route.provenance.topic_id != before:
                raise ApiError(  # a new session compares with what the target has
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic} was deleted and created again"
                )
        if routes.keys() != self._routes.keys():
            self._clients.consumer.subscribe(sorted(routes))
        self._routes = routes

    async def _update(self) -> None:
        """Update the ends of the source's logs, and commit the target's progress."""
        partitions = {
            where: reproduced
            for where, reproduced in self._partitions.items()
            if not reproduced.is_stopped
        }
        for where, end in (await self._ends(partitions)).items():
            partitions[where].source_end = max(partitions[where].source_end, end)
            partitions[where].reached(self._clients.consumer.position(*where) or 0)
        await self._commit()

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions of the source end, without those whose leaders do not answer."""
        wanted = dict.fromkeys(partitions, LATEST)
        try:
            found = await list_offsets(self._source, wanted, _UPDATE_S, committed=True)
        except PartialFailure as failure:
            found = dict(failure.results)
        except ApiError:
            return {}
        return {where: at.offset for where, at in found.items()}

    async def _send(self, found: PartitionRecords) -> None:
        where = TopicPartition(found.topic, found.partition)
        reproduced = self._partitions.get(where)
        if reproduced is None or reproduced.is_stopped:
            return
        reproduced.read(found.topic_id)
        origin = origin_of(self._config.source, found.topic)
        records = found.records
        delivery = await self._clients.producer.send_many(
            reproduced.target.topic,
            [record.value for record in records],
            [record.key for record in records],
            [
                stamped(record.headers, origin, Stamp(record.offset, reproduced.topic_id))
                for record in records
            ],
            partition=found.partition,
            timestamps=[record.timestamp for record in records],
        )
        offsets = [record.offset for record in records]
        delivery.add_done_callback(partial(_report_refused, self._config.name, where, offsets))
        reproduced.sent(delivery, records[-1].offset + 1, len(records), records[-1].timestamp)
        size = sum(len(record.value or b"") + len(record.key or b"") for record in records)
        self._bytes += size
        self._rate_limit.spend(size)

    def _collect(self) -> None:
        for reproduced in self._partitions.values():
            self._records += reproduced.collect()

    async def _commit(self) -> None:
        """Commit the target's progress to the group at the source."""
        self._collect()
        offsets = {where: reproduced.acknowledged for where, reproduced in self._partitions.items()}
        news = {
            where: OffsetAndMetadata(offset, topic_id=self._partitions[where].read_id)
            for where, offset in offsets.items()
            if offset >= 0 and self._committed.get(where) != offset
        }
        if not news:
            return
        try:
            await self._clients.consumer.commit(news)
        except ApiError as error:  # such as a rebalance in progress: retried at the next update
            _log.debug("link %s: not committed: %s", self._config.name, error)
        else:
            self._committed |= {where: at.offset for where, at in news.items()}

    async def _assigned(self, partitions: list[TopicPartition]) -> None:
        """Resolve where each partition goes on."""
        if not partitions:
            return
        group = self._config.group
        starts = await self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await self._admin.list_offsets(dict.fromkeys(partitions, LATEST))
        committed = await self._admin.committed_offsets(group, partitions)
        for where in partitions:
            route = self._routes[where.topic]
            target = TopicPartition(route.target_topic, where.partition)
            reproduced = self._partitions[where] = ReproducedPartition(
                where, target, route.provenance.topic_id
            )
            found = await find_resume(
                self._target, target, origin_of(self._config.source, where.topic)
            )
            known = committed[where].offset if where in committed else None
            at = reproduced.resolve(found, known, starts[where].offset, ends[where].offset)
            if reproduced.error is not None:
                _log.error("link %s: %s-%d: %s", self._config.name, *where, reproduced.error)
            if at is None:
                self._clients.consumer.pause([where])
            self._clients.consumer.seek(*where, reproduced.source_start if at is None else at)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Drain what was sent of the partitions before other processes get them."""
        await self._clients.producer.flush(self._config.transfer.drain_timeout_ms / 1000)
        await self._commit()
        for where in partitions:
            self._partitions.pop(where, None)
            self._committed.pop(where, None)

    async def _leave(self) -> None:
        try:
            with suppress(QbusError):  # what was not acknowledged may be produced again
                await self._clients.producer.flush(self._config.transfer.drain_timeout_ms / 1000)
                await self._commit()
        finally:
            await self._clients.close()


def _report_refused(
    link: str, where: TopicPartition, offsets: Sequence[int], delivery: BulkDelivery
) -> None:
    """Log which records the target refused for good: later ones of the same call may be stored.

    Another run goes on behind the last stored record, so nothing copies the refused ones.
    """
    refused = {
        offsets[number]: error
        for number, error in delivery._failures().items()
        if isinstance(error, ApiError) and not error.retriable
    }
    if not refused or len(refused) == len(offsets):
        return  # nothing, or everything: then the next run sends it again
    first, error = next(iter(refused.items()))
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    _log.error(
        "link %s: the target refused the record at offset %d of %s-%d%s, and stored others of the"
        " same request: the refused ones are missing at the target (%s)",
        *(link, first, *where, more, error),
    )
