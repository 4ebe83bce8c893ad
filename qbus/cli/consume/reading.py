"""How a command reads a topic: where it starts, when it ends, and which offsets it commits."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from qbus.cli.consume.selection import Selection
from qbus.cli.consume.stopping import Offsets, StopOffsets, first_from
from qbus.cli.failures import Failure, describe
from qbus.cli.parameters import Position
from qbus.cli.session import REQUEST_TIMEOUT_MS, admin_of
from qbus.cli.targets import Target
from qbus.clients import Consumer
from qbus.clients.types import OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch

if TYPE_CHECKING:
    from qbus.clients.types import PartitionRecords

_POLL_S = 0.5

_NOT_ASKED = Position("earliest")

#: How often topics that match a pattern are looked for.
_FIND_INTERVAL_S = 5.0

#: Another member has the partitions, and reads the records that could not be committed again.
_MOVED_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Reading:
    """Reads a selection of topics alone or as a member of ``group``; an async context manager.

    A batch counts as processed when the next one is asked for. The group's offsets are committed
    up to the last processed batch on exit. Without a ``start`` it reads from the earliest record.
    """

    def __init__(
        self,
        target: Target,
        selection: Selection,
        group: str | None,
        start: Position | None = None,
        *,
        until: Position | None = None,
        skip_corrupt: bool = False,
        committed: bool = False,
    ) -> None:
        self._target = target
        self._selection = selection
        self._group = group
        self._start = start or _NOT_ASKED
        self._skips_corrupt = skip_corrupt
        self._has_noted = False
        self._consumer = Consumer(
            target.bootstrap,
            **target.options,
            group=group,
            offset_reset="latest" if self._start.kind == "latest" else "earliest",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            client_id="qbus-consume",
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        self._stops = StopOffsets(self._consumer, until)
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        self._first: dict[TopicPartition, int] = {}
        self._found_at = 0.0

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

    async def open(self) -> None:
        """Find the topics, and where reading them starts and ends.

        Raises ApiError or Failure when a named topic, or one of the partitions, does not exist.
        """
        wanted = await self._find()
        ends = await self._bounds(wanted)
        await self._stops.find(wanted, ends)
        if self._group is None:
            self._assign(await self._positions(wanted, ends))
            return
        await self._start_group(wanted, ends)
        if self._selection.partitions:
            self._consumer.assign((p.topic, p.partition, None) for p in wanted)
        else:
            self._consumer.subscribe(self._selection.pattern or self._selection.names)

    async def batches(self, *, count: int | None = None) -> "AsyncIterator[PartitionRecords]":
        """Yield records as they arrive, ``count`` records at most."""
        remaining = count
        while not await self._is_at_end():
            for batch in await self._poll():
                partition = TopicPartition(batch.topic, batch.partition)
                records = batch.records[:remaining]
                stop = self._stops.of(partition)
                if stop is not None:
                    records = [record for record in records if record.offset < stop]
                if self._has_reached_stop(partition):
                    self._consumer.pause([partition])
                if records:
                    yield replace(batch, records=records)
                    self._done[partition] = OffsetAndMetadata(
                        records[-1].offset + 1, topic_id=batch.topic_id
                    )
                if remaining is not None:
                    remaining -= len(records)
                    if remaining == 0:
                        return
            await self._look_again()

    async def _poll(self) -> "list[PartitionRecords]":
        try:
            polled = await self._consumer.poll(_POLL_S)
        except CorruptBatch as error:
            partition = TopicPartition(error.topic or "", error.partition or 0)
            if self._has_reached_stop(partition):
                self._consumer.pause([partition])
                return []
            if not self._skips_corrupt:
                raise Failure(f"{describe(error)}; --skip-corrupt reads on behind it") from error
            skipped = await self._consumer.seek_past(error)
            click.echo(f"qbus: {describe(error)}; skipped {skipped} offsets", err=True)
            return []
        self._note_waiting(is_waiting=not polled)
        return polled

    def _note_waiting(self, *, is_waiting: bool) -> None:
        """Say once that the group has given no partitions yet, or that no topic matches."""
        if not is_waiting or self._has_noted or self._consumer.assignment:
            return
        self._has_noted = True
        if self._group is None:
            what = f"no topic matches {self._selection}: waiting for one"
        else:
            what = (
                f"waiting for a share of {self._selection} in group {self._group}:"
                " a new group forms for some seconds, and others may have all partitions"
            )
        click.echo(f"qbus: {what}", err=True)

    async def _find(self) -> list[TopicPartition]:
        """The selected partitions that exist now."""
        self._found_at = time.monotonic()
        existing: list[TopicPartition] = []
        for topic in await self._topics():
            existing += await self._consumer.partitions(topic)
        selection = self._selection
        wanted = [TopicPartition(t, i) for t in selection.names for i in selection.partitions]
        for partition in wanted:
            if partition not in existing:
                raise Failure(f"topic {partition.topic} has no partition {partition.partition}")
        return wanted or existing

    async def _topics(self) -> list[str]:
        has_pattern = self._selection.pattern is not None
        return self._selection.matching(await self._names() if has_pattern else ())

    async def _names(self) -> list[str]:
        async with admin_of(self._target) as admin:
            return [topic.name for topic in await admin.list_topics()]

    async def _bounds(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Note where the logs of ``partitions`` start; return where they end."""
        self._first |= await self._consumer.beginning_offsets(partitions)
        return await self._consumer.end_offsets(partitions)

    def _assign(self, positions: Offsets) -> None:
        self._consumer.assign((p.topic, p.partition, at) for p, at in positions.items())

    async def _look_again(self) -> None:
        """Take up topics that match by now, whole; and find where to stop, once it is time to."""
        if self._stops.are_due:
            known = list(self._first)
            await self._stops.find(known, await self._consumer.end_offsets(known))
        is_due = time.monotonic() - self._found_at >= _FIND_INTERVAL_S
        if self._selection.pattern is None or self._group is not None or not is_due:
            return
        try:
            added = [p for p in await self._find() if p not in self._first]
            positions = await self._consumer.beginning_offsets(added) if added else {}
        except ApiError as error:
            if not error.retriable:
                raise
            return  # they are looked for again
        if not added:
            return
        self._first |= positions
        for partition in self._consumer.assignment:
            at = self._consumer.position(partition)
            positions[partition] = self._first[partition] if at is None else at
        self._assign(positions)

    async def _start_group(self, wanted: Sequence[TopicPartition], ends: Offsets) -> None:
        """Commit the start offset in partitions without one, if it is an offset or a time.

        Says so if a start was asked for that counts for none of the partitions.
        """
        if self._start is _NOT_ASKED:
            return
        committed = await self._consumer.committed(wanted)
        unread = [p for p in wanted if p not in committed or committed[p].offset < 0]
        if wanted and not unread:
            click.echo(
                f"qbus: group {self._group} goes on at its committed offsets: --from is for"
                " partitions without one ('qbus group reset-offsets' changes them)",
                err=True,
            )
        if unread and self._start.kind not in {"earliest", "latest"}:
            positions = await self._positions(unread, ends)
            await self._consumer.commit({p: OffsetAndMetadata(at) for p, at in positions.items()})

    async def _positions(self, wanted: Sequence[TopicPartition], ends: Offsets) -> Offsets:
        """The start positions, within the bounds of the log."""
        match self._start.kind:
            case "earliest":
                return {p: self._first[p] for p in wanted}
            case "latest":
                return {p: ends[p] for p in wanted}
            case "offset":
                at = self._start.value
                return {p: min(max(at, self._first[p]), ends[p]) for p in wanted}
            case "time":
                within = {p: ends[p] for p in wanted}
                return await first_from(self._consumer, self._start.value, within)

    async def _is_at_end(self) -> bool:
        if not self._stops.are_known:
            return False
        stops = self._stops.items()
        if all(self._first[p] >= stop for p, stop in stops):
            return True
        assigned = self._consumer.assignment
        if assigned:
            return all(self._has_reached_stop(p) for p in assigned)
        if self._group is None:
            return False
        # Other members have all partitions, or the assignment is pending: they may finish alone.
        committed = await self._consumer.committed([p for p, _ in stops])
        return all(
            self._first[p] >= stop or (p in committed and committed[p].offset >= stop)
            for p, stop in stops
        )

    def _has_reached_stop(self, partition: TopicPartition) -> bool:
        position, stop = self._consumer.position(partition), self._stops.of(partition)
        return position is not None and stop is not None and position >= stop

    async def _commit(self, *, is_failing: bool) -> None:
        assigned = set(self._consumer.assignment)
        offsets = {p: at for p, at in self._done.items() if p in assigned}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                click.echo(f"qbus: {describe(error)}", err=True)
            elif not is_failing and error.code not in _MOVED_ON:
                raise
