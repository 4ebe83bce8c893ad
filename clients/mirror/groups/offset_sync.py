"""Carries the offsets of all groups of a link, once: reads at the source, commits at the target."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qbus.errors import ApiError, ErrorCode

from ...admin import Admin
from ...errors import PartialFailure
from ...net.cluster import Cluster
from ...net.retry import each
from ...types import LATEST, TopicPartition
from ..config import LinkConfig
from ..topics import read_topics
from .counterparts import counterparts
from .plan import Offsets, plan, translate

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
class CarriedGroup:
    """What came of a group: the offsets it was given at the target, or why it got none."""

    group: str
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    skipped: str | None = None


class OffsetSync:
    """Carries offsets from ``source`` to ``target``."""

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        self._config = config
        self._clusters = source, target
        self._source = Admin.over(source)
        self._target = Admin.over(target)

    async def carry(
        self, groups: Iterable[str] | None = None, *, backwards: bool = False
    ) -> list[CarriedGroup]:
        """Carry what can be; what came of each group that has committed for a mirrored topic.

        groups: by default those that the configuration selects.
        backwards: set groups back that are further at the target than at the source.

        Raises :class:`~qbus.errors.ApiError` where a cluster cannot be asked at all.
        """
        names = await self._counterparts()
        wanted = await self._selected() if groups is None else list(groups)
        found = await each(wanted, lambda name: self._translated(name, names))
        failed = {name: got for name, got in found.items() if isinstance(got, ApiError)}
        committed = {
            name: got for name, got in found.items() if not isinstance(got, ApiError) and got
        }
        # Read before anything is committed: they only grow, so that no offset is ahead of them.
        ends = await self._high_watermarks({tp for offsets in committed.values() for tp in offsets})
        done = await each(
            committed, lambda name: self._carry(name, committed[name], ends, backwards=backwards)
        )
        return [
            CarriedGroup(name, skipped=str(got)) if isinstance(got, ApiError) else got
            for name, got in sorted({**failed, **done}.items())
        ]

    async def _counterparts(self) -> dict[str, str]:
        here, there = [await read_topics(cluster) for cluster in self._clusters]
        config = self._config
        return counterparts(config.source, here.values(), config.target, there.values())

    async def _selected(self) -> list[str]:
        listed = await self._source.list_groups()
        return [
            one.group
            for one in listed
            if one.protocol_type in _CONSUMERS and one.group in self._config.group_selection
        ]

    async def _translated(self, group: str, names: Mapping[str, str]) -> Offsets:
        return translate(await self._source.committed_offsets(group), names)

    async def _high_watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """How far the target's consumers see; what it does not have or cannot tell is absent."""
        try:
            found = await self._target.list_offsets(dict.fromkeys(partitions, LATEST))
        except PartialFailure as error:
            found = dict(error.results)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            found = {}
        return {partition: at.offset for partition, at in found.items()}

    async def _carry(
        self,
        group: str,
        committed: Offsets,
        ends: Mapping[TopicPartition, int],
        *,
        backwards: bool,
    ) -> CarriedGroup:
        if await self._has_members(group):
            return CarriedGroup(group, skipped=_HAS_MEMBERS)
        present = await self._target.committed_offsets(group, committed)
        changes = plan(committed, present, ends, backwards=backwards)
        if changes:
            try:
                await self._target.alter_group_offsets(group, changes)
            except ApiError as error:
                if error.code in _IN_USE:
                    return CarriedGroup(group, skipped=_HAS_MEMBERS)
                raise
        return CarriedGroup(group, {partition: at.offset for partition, at in changes.items()})

    async def _has_members(self, group: str) -> bool:
        try:
            return bool((await self._target.describe_group(group)).members)
        except ApiError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise
