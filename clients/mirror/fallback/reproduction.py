"""A link whose target keeps no offsets: it consumes here, and produces there.

The processes of a link are a consumer group at the source. What they commit there shows how far the
link is; where a partition goes on is what its last record at the target says.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from qbus.clock import SystemClock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.token_bucket import RateLimit

from ...admin import Admin
from ...errors import PartialFailure
from ...net.cluster import Cluster
from ...offsets import list_offsets
from ...types import EARLIEST, LATEST, OffsetAndMetadata, PartitionRecords, TopicPartition
from ..config import LinkConfig
from ..routes import Way
from ..status import GroupsStatus, LinkStatus
from .clients import Clients
from .copy import Copy
from .resuming import find_resume
from .stamp import Stamp, origin_of, stamped
from .topics import prepare

_log = logging.getLogger(__name__)

_POLL_S = 0.2
_LOOK_S = 1.0
_NO_GROUPS = "groups are not carried over: records have other offsets at a target that is no Qbus"


class Reproduction:
    """Runs one link to a target that is no Qbus, as :class:`~qbus.clients.mirror.link.Link`."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._admin = Admin.over(source)
        self._clock = SystemClock()
        self._rate_limit = RateLimit(config.rate_limit_bytes, self._clock.monotonic())
        self._ways: dict[str, Way] = {}
        self._copies: dict[TopicPartition, Copy] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._records = 0
        self._bytes = 0

    def status(self) -> LinkStatus:
        """How it is going."""
        config, now_ms = self._config, self._clock.time_ms()
        return LinkStatus(
            name=config.name,
            source=config.source,
            target=config.target,
            partitions=tuple(copy.status(now_ms) for _, copy in sorted(self._copies.items())),
            records=self._records,
            bytes=self._bytes,
            groups=GroupsStatus(error=_NO_GROUPS if config.groups.enabled else None),
            reproduces=True,
        )

    async def run(self) -> None:
        """Mirror until cancelled: then what was sent is waited for, and the group left.

        Raises :class:`~qbus.errors.QbusError` when something fails: whoever runs it again goes on
        behind what the target has.
        """
        config = self._config
        _log.warning(
            "link %s: %s is no Qbus: records are produced anew, at offsets of their own, and groups"
            " are not carried over",
            config.name,
            config.target_bootstrap,
        )
        self._clients = Clients(config, self._assigned, self._revoked)
        try:
            await self._copy()
        finally:
            await self._leave()

    async def _copy(self) -> None:
        look_at = discover_at = 0.0
        while True:
            now = self._clock.monotonic()
            if now >= discover_at:
                discover_at = now + self._config.topics_at_target.discovery_interval_ms / 1000
                await self._discover()
            if now >= look_at:
                look_at = now + _LOOK_S
                await self._look()
            if not self._ways:
                await asyncio.sleep(_LOOK_S)
                continue
            for found in await self._clients.consumer.poll(_POLL_S):
                await self._send(found)
            self._settle()
            await asyncio.sleep(self._rate_limit.wait(self._clock.monotonic()))

    async def _discover(self) -> None:
        ways = await prepare(self._config, self._source, self._target)
        for topic, way in ways.items():
            before = self._ways.get(topic, way).provenance.topic_id
            if way.provenance.topic_id != before:
                raise ApiError(  # who begins again compares what the target has
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic} was deleted and created again"
                )
        if ways.keys() != self._ways.keys():
            self._clients.consumer.subscribe(sorted(ways))
        self._ways = ways

    async def _look(self) -> None:
        """See how long the logs of the source are, and commit how far the target is."""
        copies = {where: copy for where, copy in self._copies.items() if not copy.is_stopped}
        for where, end in (await self._ends(copies)).items():
            copies[where].source_end = max(copies[where].source_end, end)
            copies[where].reached(self._clients.consumer.position(*where) or 0)
        await self._commit()

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions of the source end, of those whose leaders tell it soon."""
        wanted = dict.fromkeys(partitions, LATEST)
        try:
            found = await list_offsets(self._source, wanted, _LOOK_S, committed=True)
        except PartialFailure as failure:
            found = dict(failure.results)
        except ApiError:
            return {}
        return {where: at.offset for where, at in found.items()}

    async def _send(self, found: PartitionRecords) -> None:
        where = TopicPartition(found.topic, found.partition)
        copy = self._copies.get(where)
        if copy is None or copy.is_stopped:
            return
        origin = origin_of(self._config.source, found.topic)
        records = found.records
        delivery = await self._clients.producer.send_many(
            copy.target.topic,
            [record.value for record in records],
            [record.key for record in records],
            [
                stamped(record.headers, origin, Stamp(record.offset, copy.topic_id))
                for record in records
            ],
            partition=found.partition,
            timestamps=[record.timestamp for record in records],
        )
        copy.sent(delivery, records[-1].offset + 1, len(records), records[-1].timestamp)
        size = sum(len(record.value or b"") + len(record.key or b"") for record in records)
        self._bytes += size
        self._rate_limit.spend(size)

    def _settle(self) -> None:
        for copy in self._copies.values():
            self._records += copy.settle()

    async def _commit(self) -> None:
        """Tell the group at the source how far the target is."""
        self._settle()
        offsets = {where: copy.acknowledged for where, copy in self._copies.items()}
        news = {
            where: OffsetAndMetadata(offset)
            for where, offset in offsets.items()
            if offset >= 0 and self._committed.get(where) != offset
        }
        if not news:
            return
        try:
            await self._clients.consumer.commit(news)
        except ApiError as error:  # a rebalance goes on, say: the next time
            _log.debug("link %s: not committed: %s", self._config.name, error)
        else:
            self._committed |= {where: at.offset for where, at in news.items()}

    async def _assigned(self, partitions: list[TopicPartition]) -> None:
        """Find out where each goes on."""
        if not partitions:
            return
        group = self._config.group
        starts = await self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await self._admin.list_offsets(dict.fromkeys(partitions, LATEST))
        committed = await self._admin.committed_offsets(group, partitions)
        for where in partitions:
            way = self._ways[where.topic]
            target = TopicPartition(way.target_topic, where.partition)
            copy = self._copies[where] = Copy(where, target, way.provenance.topic_id)
            found = await find_resume(
                self._target, target, origin_of(self._config.source, where.topic)
            )
            known = committed[where].offset if where in committed else None
            at = copy.place(found, known, starts[where].offset, ends[where].offset)
            if copy.error is not None:
                _log.error("link %s: %s-%d: %s", self._config.name, *where, copy.error)
            if at is None:
                self._clients.consumer.pause([where])
            self._clients.consumer.seek(*where, copy.source_start if at is None else at)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Have what was sent of them acknowledged before they are another's."""
        await self._clients.producer.flush(self._config.transfer.drain_timeout_ms / 1000)
        await self._commit()
        for where in partitions:
            self._copies.pop(where, None)
            self._committed.pop(where, None)

    async def _leave(self) -> None:
        try:
            with suppress(QbusError):  # what was not acknowledged is produced again, perhaps
                await self._clients.producer.flush(self._config.transfer.drain_timeout_ms / 1000)
                await self._commit()
        finally:
            await self._clients.close()
