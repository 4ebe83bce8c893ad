"""Where a consumer reads, and where it could: positions, and the offsets that brokers know of."""

import asyncio
from collections.abc import Iterable, Mapping

from ..net.cluster import Cluster
from ..offsets import list_offsets
from ..types import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    TopicPartition,
)
from .assignment import Assignment


class Positions:
    """What a consumer can do about its positions, which needs neither a group nor records."""

    _cluster: Cluster
    _assignment: Assignment
    _changed: asyncio.Event

    def position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record that a poll returns; None: not yet known."""
        return self._assignment.position(TopicPartition(topic, partition))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset``, which may be EARLIEST or LATEST, in an assigned partition."""
        self._assignment.seek(TopicPartition(topic, partition), offset)

    async def seek_to_time(self, topic: str, partition: int, timestamp: int) -> None:
        """Go on at the first record from a time on, in milliseconds since the Unix epoch.

        After the last record if there is none so late.
        """
        where = TopicPartition(topic, partition)
        self._assignment.assigned(where)
        found = (await list_offsets(self._cluster, {where: timestamp}))[where]
        if found.offset < 0:
            found = (await list_offsets(self._cluster, {where: LATEST}))[where]
        self._assignment.seek(where, found.offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of these, which stay assigned, until :meth:`resume`."""
        for partition in partitions:
            state = self._assignment.assigned(partition)
            state.is_paused = True
            state.take_back()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give records of these again."""
        for partition in partitions:
            self._assignment.assigned(partition).is_paused = False
        self._changed.set()

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        states = self._assignment.states.items()
        return sorted(partition for partition, state in states if state.is_paused)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many records are still to be read of each assigned partition with a position."""
        positions = {one: self._assignment.position(one) for one in self._assignment}
        known = {one: at for one, at in positions.items() if at is not None}
        ends = await self.end_offsets(known)
        return {one: max(ends[one] - at, 0) for one, at in known.items() if one in ends}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after a time in milliseconds since the Unix epoch.

        Both numbers are -1 where there is none.
        """
        return await list_offsets(self._cluster, times)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset that each of ``partitions`` has."""
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, EARLIEST))
        return {partition: at.offset for partition, at in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each of ``partitions`` will have."""
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, LATEST))
        return {partition: at.offset for partition, at in found.items()}

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Every partition of ``topic``; raises UNKNOWN_TOPIC_OR_PARTITION."""
        await self._cluster.need([topic])
        description = self._cluster.metadata.topic(topic)
        return [TopicPartition(topic, part.index) for part in description.partitions]
