"""The consumer's face."""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from qbus.errors import ConfigError

from ..cluster import Cluster
from ..committed import fetch_committed
from ..group.assignors import DEFAULT_ASSIGNORS, Assignor, assignors_of
from ..group.callbacks import Callback, Callbacks
from ..group.options import GroupOptions
from ..offsets import list_offsets
from ..types import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionRecords,
    TopicPartition,
)
from .assignment import Assignment
from .fetcher import Fetcher
from .options import ConsumerOptions, OffsetReset
from .upkeep import Upkeep

_LOOK_AROUND = 1.0
"""Seconds after which a waiting poll sees whether something is due that no event tells of."""


class Consumer:
    """Reads records: of chosen partitions, of whole topics, or of a group's share of them.

    An async context manager, for one task at a time. A group rebalances while its members poll: one
    that does not for ``rebalance_timeout_ms``, while the others wait for it, loses its place.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        offset_reset: OffsetReset = "latest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        instance_id: str | None = None,
        assignors: Sequence[str | Assignor] = DEFAULT_ASSIGNORS,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        rebalance_timeout_ms: int | None = None,
        rack: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        partition_max_bytes: int = 1024 * 1024,
        max_poll_records: int = 20_000,
        check_crcs: bool = True,
        request_timeout_ms: int = 30_000,
        client_id: str = "qbus-consumer",
    ) -> None:
        """Connects at the first poll.

        bootstrap: ``host:port,...``
        group: share the topics with the other members of this group, and keep offsets in it.
        offset_reset: where to begin in a partition without a committed or an existing offset:
            "earliest", "latest", or "none" for an error.
        auto_commit: commit, every ``auto_commit_interval_ms`` and at the end, what earlier polls
            returned. Only with a group.
        instance_id: make a static member, which may restart without a rebalance (KIP-345).
        assignors: who shares out the partitions, by preference: "range", "roundrobin", "sticky",
            "cooperative-sticky", or objects of your own. The group takes one that all members
            have. A rebalance stops only what moves if all of them are cooperative (KIP-429).
        session_timeout_ms: after how long without heartbeats a member counts as dead.
        max_poll_interval_ms: a member that is not polled for longer leaves the group.
        rebalance_timeout_ms: for how long a rebalance waits for members to poll; by default
            ``max_poll_interval_ms``.
        rack: where this consumer runs, so that it may read from replicas nearby.
        on_assigned, on_revoked, on_lost: functions or coroutine functions that take a list of
            partitions, and are called inside polls: when partitions have come, before they go to
            another, and when they are gone because the group went on without us (by default
            ``on_revoked`` is called then). What they raise, the poll raises.
        fetch_min_bytes, fetch_max_wait_ms: how much a broker gathers for an answer, and how long.
        fetch_max_bytes, partition_max_bytes: about how much one answer may hold.
        max_poll_records: how many records a poll returns at most.
        check_crcs: verify the checksum of every batch.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        if offset_reset not in {"earliest", "latest", "none"}:
            raise ConfigError(f"offset_reset is earliest, latest or none, not {offset_reset!r}")
        self._options = ConsumerOptions(
            offset_reset=offset_reset,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            partition_max_bytes=partition_max_bytes,
            fetch_max_wait=fetch_max_wait_ms / 1000,
            max_poll_records=max_poll_records,
            check_crcs=check_crcs,
            auto_commit=auto_commit_interval_ms / 1000 if auto_commit and group else None,
        )
        self._group = group and GroupOptions(
            group=group,
            instance_id=instance_id,
            session_timeout=session_timeout_ms / 1000,
            rebalance_timeout=(rebalance_timeout_ms or max_poll_interval_ms) / 1000,
            heartbeat_interval=heartbeat_interval_ms / 1000,
            max_poll_interval=max_poll_interval_ms / 1000,
            assignors=assignors_of(assignors),
            rack=rack,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost),
        )
        self._changed = asyncio.Event()
        self._cluster = Cluster(bootstrap, client_id, request_timeout_ms / 1000)
        self._assignment = Assignment()
        self._fetcher = Fetcher(self._cluster, self._assignment, self._options, self._changed)
        self._upkeep = Upkeep(
            self._cluster, self._assignment, self._options, self._group or None, self._changed
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, *_: object) -> None:
        await self.close(commit=exc_type is None)

    # What to read.

    def assign(self, partitions: Iterable[tuple[str, int, int | None]]) -> None:
        """Read these ``(topic, partition, offset)``, in place of what was read before.

        The offset may be EARLIEST or LATEST; None is the group's committed one, else what
        ``offset_reset`` says. Raises :class:`~qbus.errors.QbusError` after :meth:`subscribe`.
        """
        self._upkeep.check_not_subscribed()
        wanted = {TopicPartition(topic, index): offset for topic, index, offset in partitions}
        self._assignment.replace(wanted)
        for partition, offset in wanted.items():
            if offset is not None:
                self._assignment.seek(partition, offset)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        """Read ``topics``: all their partitions, or with a group those that it gives us.

        Names, or a compiled pattern that names match as a whole, now or when they appear. Raises
        :class:`~qbus.errors.ConfigError` for a single string.
        """
        self._upkeep.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group, as :meth:`close` does, and read nothing."""
        await self._upkeep.unsubscribe()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now; empty while the group rebalances."""
        return sorted(self._assignment)

    # Reading.

    async def poll(self, timeout: float = 1.0) -> list[ConsumerRecord]:
        """The next records, waiting up to ``timeout`` seconds for the first; may be none.

        Raises :class:`~qbus.errors.ApiError` for what cannot pass by itself, such as
        :class:`~qbus.records.CorruptBatch`, or OFFSET_OUT_OF_RANGE without an ``offset_reset``.
        """
        new_record = tuple.__new__
        return [
            new_record(ConsumerRecord, (topic, partition, *record))
            for topic, partition, records in await self.poll_batches(timeout)
            for record in records
        ]

    async def poll_batches(self, timeout: float = 1.0) -> list[PartitionRecords]:
        """As :meth:`poll`, by partition: quicker for many records."""
        deadline = time.monotonic() + timeout
        await asyncio.sleep(0)
        while True:
            self._changed.clear()
            await self._upkeep.run()
            found = self._fetcher.take()
            self._fetcher.start()
            remaining = deadline - time.monotonic()
            if found or remaining <= 0:
                return found
            try:
                async with asyncio.timeout(min(remaining, _LOOK_AROUND)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # Where it reads.

    def position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record that a poll returns; None: not yet known."""
        return self._assignment.position(TopicPartition(topic, partition))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at ``offset``, which may be EARLIEST or LATEST, in an assigned partition."""
        self._assignment.seek(TopicPartition(topic, partition), offset)

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

    # Offsets of the group.

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit ``offsets``, or the positions: everything that polls have returned.

        Raises :class:`~qbus.errors.ApiError`; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and
        REBALANCE_IN_PROGRESS mean that the partitions may be another's by now.
        """
        self._needed_group()
        if offsets is None:
            offsets = self._assignment.to_commit()
        if offsets:
            await self._upkeep.commit(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for ``partitions``, by default the assigned ones."""
        wanted = self.assignment if partitions is None else list(partitions)
        return await fetch_committed(self._cluster, self._needed_group().group, wanted)

    async def close(self, *, commit: bool = True) -> None:
        """Commit if that is automatic (unless told not to), leave the group, close."""
        await self._fetcher.close()
        try:
            await self._upkeep.close(commit)
        finally:
            await self._cluster.close()

    def _needed_group(self) -> GroupOptions:
        if not self._group:
            raise ConfigError("offsets are kept in a group, and the consumer has none")
        return self._group
