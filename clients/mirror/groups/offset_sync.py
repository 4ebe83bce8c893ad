"""Syncs the offsets of a link's groups once: reads them at the source, commits at the target."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qbus.errors import ApiError, ErrorCode

from ...admin import Admin
from ...errors import PartialFailure
from ...net.cluster import Cluster
from ...net.retry import ask_each
from ...types import LATEST, TopicPartition
from ..config import LinkConfig
from ..topics import read_topics
from .plan import Offsets, counterparts, plan, translate

_CONSUMERS = frozenset({"consumer", ""})
"""Protocol types: of groups with members, and of those that only commit."""
_IN_USE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_HAS_MEMBERS = "it has members at the target"


@dataclass(frozen=True, slots=True)
class SyncedGroup:
    """The outcome for a group: the offsets committed at the target, or why there are none."""

    group: str
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    skipped: str | None = None


class OffsetSync:
    """Syncs committed offsets from ``source`` to ``target``."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        self._config = config
        self._clusters = source, target
        self._source = Admin.over(source)
        self._target = Admin.over(target)

    async def sync(
        self, groups: Iterable[str] | None = None, *, backwards: bool = False
    ) -> list[SyncedGroup]:
        """Sync offsets; return the outcome of each group with offsets in mirrored topics.

        groups: by default those that the configuration selects.
        backwards: also set groups back that are further at the target than at the source.

        Raises :class:`~qbus.errors.ApiError` if a cluster cannot be reached.
        """
        names = await self._counterparts()
        wanted = await self._selected() if groups is None else list(groups)
        found = await ask_each(wanted, lambda name: self._translated(name, names))
        failed = {name: got for name, got in found.items() if isinstance(got, ApiError)}
        committed = {
            name: got for name, got in found.items() if not isinstance(got, ApiError) and got
        }
        # Read before anything is committed: they only grow, so no offset is beyond them.
        ends = await self._high_watermarks({tp for offsets in committed.values() for tp in offsets})
        done = await ask_each(
            committed, lambda name: self._sync(name, committed[name], ends, backwards=backwards)
        )
        return [
            SyncedGroup(name, skipped=str(got)) if isinstance(got, ApiError) else got
            for name, got in sorted({**failed, **done}.items())
        ]

    async def _counterparts(self) -> dict[str, str]:
        here, there = [await read_topics(cluster) for cluster in self._clusters]
        config = self._config
        return counterparts(config.source, here.values(), config.target, there.values())

    async def _selected(self) -> list[str]:
        listed = await self._source.list_groups()
        return [
            group.group
            for group in listed
            if group.protocol_type in _CONSUMERS and group.group in self._config.group_selection
        ]

    async def _translated(self, group: str, names: Mapping[str, str]) -> Offsets:
        return translate(await self._source.committed_offsets(group), names)

    async def _high_watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the target's high watermarks, without those that cannot be found out."""
        try:
            found = await self._target.list_offsets(dict.fromkeys(partitions, LATEST))
        except PartialFailure as error:
            found = dict(error.results)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            found = {}
        return {partition: at.offset for partition, at in found.items()}

    async def _sync(
        self,
        group: str,
        committed: Offsets,
        ends: Mapping[TopicPartition, int],
        *,
        backwards: bool,
    ) -> SyncedGroup:
        if await self._has_members(group):
            return SyncedGroup(group, skipped=_HAS_MEMBERS)
        present = await self._target.committed_offsets(group, committed)
        changes = plan(committed, present, ends, backwards=backwards)
        if changes:
            try:
                await self._target.alter_group_offsets(group, changes)
            except ApiError as error:
                if error.code in _IN_USE:
                    return SyncedGroup(group, skipped=_HAS_MEMBERS)
                raise
        return SyncedGroup(group, {partition: at.offset for partition, at in changes.items()})

    async def _has_members(self, group: str) -> bool:
        try:
            return bool((await self._target.describe_group(group)).members)
        except ApiError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise
