"""How a command reads a topic: where it starts, when it ends, and which offsets it commits."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from qbus.cli.failures import Failure, describe
from qbus.cli.session import REQUEST_TIMEOUT_MS
from qbus.clients import Consumer
from qbus.clients.types import OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch

if TYPE_CHECKING:
    from qbus.cli.parameters import Position
    from qbus.clients.types import PartitionRecords

_POLL_S = 0.5

#: Another member has the partitions, and reads the records that could not be committed again.
_MOVED_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)

Offsets = Mapping[TopicPartition, int]


class Reading:
    """Reads ``topic`` alone or as a member of ``group``; an async context manager.

    A batch counts as processed when the next one is asked for. The group's offsets are committed
    up to the last processed batch on exit.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str | None,
        start: "Position",
        *,
        skip_corrupt: bool = False,
    ) -> None:
        self._topic = topic
        self._group = group
        self._start = start
        self._skips_corrupt = skip_corrupt
        self._has_noted = False
        self._consumer = Consumer(
            bootstrap,
            group=group,
            offset_reset="latest" if start.kind == "latest" else "earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            client_id="qbus-consume",
        )
        self._done: dict[TopicPartition, int] = {}
        self._first: Offsets = {}
        self._end: Offsets = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._group is not None:
                await self._commit(is_failing=kind is not None)
        finally:
            await self._consumer.close(commit=False)

    async def open(self, partitions: Sequence[int] = ()) -> None:
        """Find the topic, and the start positions in ``partitions``, by default all of them.

        Raises ApiError or Failure when the topic, or one of the partitions, does not exist.
        """
        wanted = await self._wanted(partitions)
        self._first = await self._consumer.beginning_offsets(wanted)
        self._end = await self._consumer.end_offsets(wanted)
        if self._group is None:
            positions = await self._positions(wanted)
            self._consumer.assign((p.topic, p.partition, at) for p, at in positions.items())
            return
        await self._commit_start(wanted)
        if partitions:
            self._consumer.assign((p.topic, p.partition, None) for p in wanted)
        else:
            self._consumer.subscribe([self._topic])

    async def batches(
        self, *, count: int | None = None, exit_at_end: bool = False
    ) -> "AsyncIterator[PartitionRecords]":
        """Yield records as they arrive.

        ``count``: the most records. ``exit_at_end``: only records that existed at the start.
        """
        remaining = count
        while not (exit_at_end and await self._is_at_end()):
            for batch in await self._poll():
                partition = TopicPartition(batch.topic, batch.partition)
                records = batch.records[:remaining]
                if exit_at_end:
                    end = self._end.get(partition, 0)
                    records = [record for record in records if record.offset < end]
                if records:
                    yield replace(batch, records=records)
                    self._done[partition] = records[-1].offset + 1
                if remaining is not None:
                    remaining -= len(records)
                    if remaining == 0:
                        return

    async def _poll(self) -> "list[PartitionRecords]":
        try:
            polled = await self._consumer.poll(_POLL_S)
        except CorruptBatch as error:
            if not self._skips_corrupt:
                raise Failure(f"{describe(error)}; --skip-corrupt reads on behind it") from error
            skipped = await self._consumer.seek_past(error)
            click.echo(f"qbus: {describe(error)}; skipped {skipped} offsets", err=True)
            return []
        self._note_waiting(is_waiting=not polled)
        return polled

    def _note_waiting(self, *, is_waiting: bool) -> None:
        """Say once that the group has given no partitions yet."""
        if is_waiting and not self._has_noted and self._group and not self._consumer.assignment:
            self._has_noted = True
            click.echo(
                f"qbus: waiting for a share of {self._topic} in group {self._group}:"
                " a new group forms for some seconds, and others may have all partitions",
                err=True,
            )

    async def _wanted(self, partitions: Sequence[int]) -> list[TopicPartition]:
        existing = await self._consumer.partitions(self._topic)
        wanted = [TopicPartition(self._topic, index) for index in sorted(set(partitions))]
        for partition in wanted:
            if partition not in existing:
                raise Failure(f"topic {self._topic} has no partition {partition.partition}")
        return wanted or existing

    async def _commit_start(self, wanted: Sequence[TopicPartition]) -> None:
        """Commit the start offset in partitions without one, if it is an offset or a time."""
        if self._start.kind in {"earliest", "latest"}:
            return
        committed = await self._consumer.committed(wanted)
        unread = [p for p in wanted if p not in committed or committed[p].offset < 0]
        if unread:
            positions = await self._positions(unread)
            await self._consumer.commit({p: OffsetAndMetadata(at) for p, at in positions.items()})

    async def _positions(self, wanted: Sequence[TopicPartition]) -> Offsets:
        """The start positions, within the bounds of the log."""
        match self._start.kind:
            case "earliest":
                return {p: self._first[p] for p in wanted}
            case "latest":
                return {p: self._end[p] for p in wanted}
            case "offset":
                at = self._start.value
                return {p: min(max(at, self._first[p]), self._end[p]) for p in wanted}
            case "time":
                found = await self._consumer.offsets_for_times(
                    dict.fromkeys(wanted, self._start.value)
                )
                return {p: self._end[p] if at.offset < 0 else at.offset for p, at in found.items()}

    async def _is_at_end(self) -> bool:
        if all(self._first[p] >= end for p, end in self._end.items()):
            return True
        assigned = self._consumer.assignment
        if assigned:
            return all(self._has_reached_end(p) for p in assigned)
        if self._group is None:
            return False
        # Other members have all partitions, or the assignment is pending: they may finish alone.
        committed = await self._consumer.committed(list(self._end))
        return all(
            self._first[p] >= end or (p in committed and committed[p].offset >= end)
            for p, end in self._end.items()
        )

    def _has_reached_end(self, partition: TopicPartition) -> bool:
        position = self._consumer.position(*partition)
        return position is not None and position >= self._end.get(partition, 0)

    async def _commit(self, *, is_failing: bool) -> None:
        assigned = set(self._consumer.assignment)
        offsets = {p: OffsetAndMetadata(at) for p, at in self._done.items() if p in assigned}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except ApiError as error:
            if not is_failing and error.code not in _MOVED_ON:
                raise
