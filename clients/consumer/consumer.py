"""The asyncio consumer."""

import asyncio
import re
import sys
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from qbus.errors import ConfigError
from qbus.records import CorruptBatch
from qbus.records.arrow_buffers import import_pyarrow
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.records.codec import AsyncRuns

from ..committed import fetch_committed
from ..group.assignors import DEFAULT_ASSIGNORS, Assignor, assignors_of
from ..group.options import Callback, Callbacks, GroupOptions, GroupProtocol
from ..idcs import Everywhere
from ..net.cluster import Cluster
from ..offsets import list_offsets
from ..security import SecurityOptions, security_of
from ..types import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Partition,
    PartitionRecords,
    TopicPartition,
    committable,
    keyed,
    named,
    where_and_value,
    where_of,
    with_offset,
)
from .arrow import ArrowDecoder, ColumnPool
from .assignment import Assignment
from .coordinator import ConsumerCoordinator
from .corruption import readable_after
from .fetch_buffer import ENOUGH, FetchBuffer
from .fetch_cursor import TURN, FetchCursor, Turn, is_over, records_of
from .fetcher import Fetcher
from .options import (
    ConsumerOptions,
    IsolationLevel,
    OffsetReset,
    Patience,
    check_options,
    limit_of,
)

T = TypeVar("T")

LOOK_AROUND = 1.0
"""Seconds after which a waiting poll checks for work that no event announces."""
ARROW_RECORDS = 1_000_000
"""The default limit of a poll for Arrow batches, in records."""
_ITERATED_RECORDS = 2000
"""Records that a loop yields before it looks at the clock."""
_GROUP_ITERATED_RECORDS = 500
"""Fewer for members of a group, which must poll in time however slow their users are."""


class Consumer:
    """Reads records: of chosen partitions, of whole topics, or of a group's share of them.

    An async context manager, for one task at a time. A group rebalances while its members poll: a
    member that does not poll for ``rebalance_timeout_ms`` while the others wait loses its place.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str | Sequence[str],
        *,
        group: str | None = None,
        offset_reset: OffsetReset = "latest",
        isolation_level: IsolationLevel = "read_uncommitted",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        instance_id: str | None = None,
        assignors: Sequence[str | Assignor] = DEFAULT_ASSIGNORS,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        rebalance_timeout_ms: int | None = None,
        group_protocol: GroupProtocol = "classic",
        remote_assignor: str | None = None,
        rack: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        partition_max_bytes: int = 4 * 1024 * 1024,
        prefetch_bytes: int = 64 * 1024 * 1024,
        batch_max_bytes: int = MAX_RECORDS_SIZE,
        max_poll_records: int = 20_000,
        check_crcs: bool = True,
        consumer_timeout_ms: int | None = None,
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 30_000,
        client_id: str = "qbus-consumer",
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Connect at the first poll.

        bootstrap: ``host:port,...``, a list of addresses, or ``zk://host:port,.../chroot``.
        group: the group to share topics with, and to keep offsets in.
        offset_reset: where to begin in a partition without a committed or an existing offset:
            "earliest", "latest", or "none" for an error.
        isolation_level: "read_committed" hides the records of aborted transactions, and those of
            open ones until they are committed (KIP-98).
        auto_commit: commit what earlier polls returned, regularly and when closing. Only with a
            group.
        auto_commit_interval_ms: the shortest time between such commits.
        instance_id: makes a static member, which may restart without a rebalance (KIP-345).
        assignors: how the group shares out partitions, by preference: "range", "roundrobin",
            "sticky", "cooperative-sticky", or objects of your own. The group uses one that all
            members have. Rebalances stop only partitions that move if all are cooperative
            (KIP-429).
        session_timeout_ms: a member without heartbeats for this long counts as dead.
        heartbeat_interval_ms: time between heartbeats, which also report rebalances.
        max_poll_interval_ms: a member that does not poll for longer leaves the group.
        rebalance_timeout_ms: how long a rebalance waits for members to poll; by default
            ``max_poll_interval_ms``.
        group_protocol: "consumer" lets the broker assign the partitions (KIP-848): members come and
            go without stopping the others. The broker sets session time-out and interval of
            heartbeats then, and ``assignors`` are not used.
        remote_assignor: with that protocol, how the broker shares out partitions: "uniform",
            "range", or its default.
        rack: where this consumer runs, so that it may read from nearby replicas.
        on_assigned, on_revoked, on_lost: functions (with asyncio also coroutine functions) that
            take a list of partitions. A poll calls them when partitions come, before partitions go
            to another member, and when the group gave them away without asking (by default this
            calls ``on_revoked``), and raises what they raise. The blocking consumer calls them in
            another thread; they may use the consumer.
        fetch_min_bytes, fetch_max_wait_ms: how much a broker gathers for an answer, and for how
            long at most.
        fetch_max_bytes, partition_max_bytes: about how much one answer may hold, of all partitions
            and of one.
        prefetch_bytes: how much is fetched ahead, shared equally among brokers. One batch of each
            broker may exceed it, since brokers answer with whole batches.
        batch_max_bytes: how large the records of one batch may be, decompressed. A poll raises
            :class:`~qbus.errors.CorruptBatch` for a larger one, which ``seek_past`` passes over.
        max_poll_records: the most records that a poll returns; it also returns at most about
            256 KiB at once, or one record.
        check_crcs: verify the checksum of every batch.
        consumer_timeout_ms: iterating ends when no record came for so long; by default it never
            does.
        metadata_max_age_ms: refresh metadata after this long even without errors.
        request_timeout_ms: how long an answer may take.
        client_id: the name of this client in the brokers' logs.
        security: what protects the connections; see :class:`~qbus.clients.SecurityOptions` for it,
            and for the options that may stand in its place.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        check_options(offset_reset, isolation_level, consumer_timeout_ms, batch_max_bytes)
        self._options = ConsumerOptions(
            offset_reset=offset_reset,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            partition_max_bytes=partition_max_bytes,
            prefetch_bytes=prefetch_bytes,
            fetch_max_wait=fetch_max_wait_ms / 1000,
            max_poll_records=max_poll_records,
            check_crcs=check_crcs,
            consumer_timeout=None if consumer_timeout_ms is None else consumer_timeout_ms / 1000,
            read_committed=isolation_level == "read_committed",
            rack=rack,
            batch_max_bytes=batch_max_bytes,
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
            protocol=group_protocol,
            remote_assignor=remote_assignor,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost),
        )
        at_once = _GROUP_ITERATED_RECORDS if group else _ITERATED_RECORDS
        self._iterated_records = min(at_once, max_poll_records)
        self._changed = asyncio.Event()
        self._cluster = Cluster(
            bootstrap,
            client_id,
            request_timeout_ms / 1000,
            metadata_max_age=metadata_max_age_ms / 1000,
            security=security_of("Consumer", **security),
        )
        self._assignment = Assignment()
        self._fetcher = Fetcher(self._cluster, self._assignment, self._options, self._changed)
        self._columns = ColumnPool()
        self._turn = Turn()
        self._buffer = FetchBuffer(self._assignment, self._fetcher.responses)
        self._coordinator = ConsumerCoordinator(
            self._cluster,
            self._assignment,
            self._options,
            self._group or None,
            self._changed,
            self._fetcher.recreated,
        )

    def __repr__(self) -> str:
        group = f", group {self._group.group}" if self._group else ""
        return (
            f"<Consumer of {self._cluster.name}{group}: {len(self._assignment.states)} partitions>"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, *_: object) -> None:
        await self.close(commit=exc_type is None)

    # Subscription.

    def assign(self, partitions: Iterable[Partition | tuple[str, int, int | None]]) -> None:
        """Read these ``(topic, partition)`` or ``(topic, partition, offset)``, and nothing else.

        The offset may be EARLIEST or LATEST. Without one, or with None, it is the group's committed
        one, else ``offset_reset`` decides. Raises :class:`~qbus.errors.QbusError` after
        :meth:`subscribe`.
        """
        self._coordinator.check_not_subscribed()
        wanted = dict(map(with_offset, partitions))
        self._assignment.replace(wanted)
        for partition, offset in wanted.items():
            if offset is not None:
                self._assignment.seek(partition, offset)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | Everywhere) -> None:
        """Read ``topics``: all their partitions, or the share that the group assigns.

        Takes names, a compiled pattern that whole names match, or :func:`~qbus.everywhere`; the
        latter two include topics created later. Raises :class:`~qbus.errors.ConfigError` for one
        string.
        """
        self._coordinator.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group, as :meth:`close` does, and read nothing."""
        await self._coordinator.unsubscribe()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions; empty during a rebalance."""
        return sorted(self._assignment)

    # Reading.

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None
    ) -> list[PartitionRecords]:
        """Return the next records by partition, waiting up to ``timeout`` seconds for the first.

        May return none; returns at most ``max_records``, by default ``max_poll_records``, and at
        once what can be read from the processor's cache: about 256 KiB, or one record.

        Raises :class:`~qbus.errors.ApiError` for errors that are not retriable, such as
        :class:`~qbus.records.CorruptBatch`, :class:`~qbus.LogTruncated`, or OFFSET_OUT_OF_RANGE
        without an ``offset_reset``.
        """
        limit = limit_of(max_records, self._options.max_poll_records)

        async def take(cursors: list[FetchCursor]) -> list[PartitionRecords]:
            self._turn = Turn(cursors)
            return self._turn.take(limit)

        return self._turn.more(limit) or await self._poll(timeout, take)

    async def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        """Poll as :meth:`poll` does: one ``pyarrow.RecordBatch`` for each partition with records.

        Columns: key, value, headers, topic, partition, offset, timestamp, timestamp_type. Batches
            stay whole, so there may be some more records than ``max_records``, by default
            1,000,000. Of each partition there is at most what one fetch returned, about 4 MiB.
            Raises :class:`~qbus.errors.MissingExtra` without pyarrow.
        """
        import_pyarrow()
        limit = limit_of(max_records, ARROW_RECORDS)

        async def take(cursors: list[FetchCursor]) -> list[Any]:
            decoder = ArrowDecoder(cursors, self._columns)
            await decoder.decode_beside(limit)
            return decoder.batches()

        return await self._poll(timeout, take, sys.maxsize)

    async def _poll(
        self,
        timeout: float,
        take: Callable[[list[FetchCursor]], Awaitable[list[T]]],
        enough: int = ENOUGH,
    ) -> list[T]:
        deadline = time.monotonic() + timeout
        while True:
            cursors = await self._open_cursors(deadline - time.monotonic(), enough)
            taken = await take(cursors)
            if taken or is_over(cursors, deadline):
                return taken

    def __aiter__(self) -> "AsyncRuns[ConsumerRecord]":
        """Yield records for ever, or until none came for ``consumer_timeout_ms``.

        The position is behind the last one yielded. The iterator has ``aclose``, as asynchronous
        generators have.
        """
        runs = self._runs()
        return AsyncRuns(partial(anext, runs, None), runs.aclose)

    async def _runs(self) -> AsyncGenerator[Iterator[ConsumerRecord], None]:
        patience = Patience(self._options.consumer_timeout)
        while not patience.is_over:
            cursors = await self._open_cursors(patience.wait(LOOK_AROUND))
            ends = time.monotonic() + TURN
            for records in records_of(cursors, self._iterated_records, ends):
                patience.restart()
                yield records
        self._coordinator.timed_out()

    async def _open_cursors(
        self, timeout: float = LOOK_AROUND, enough: int = ENOUGH
    ) -> list[FetchCursor]:
        deadline = time.monotonic() + timeout
        await asyncio.sleep(0)
        self._turn = Turn()
        self._buffer.close_cursors()
        has_waited = False
        while True:
            self._changed.clear()
            await self._coordinator.run()
            cursors = self._buffer.open_cursors(enough)
            if cursors and has_waited:
                self._fetcher.start_soon()
            else:
                self._fetcher.is_awaited |= not cursors
                self._fetcher.start()
            remaining = deadline - time.monotonic()
            if cursors or remaining <= 0:
                return cursors
            has_waited = True
            try:
                async with asyncio.timeout(min(remaining, LOOK_AROUND)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # Positions, and the offsets that brokers know.

    def position(self, topic: str | Partition, partition: int | None = None) -> int | None:
        """Return the offset of the next record that a poll returns; None: not yet known.

        Takes a topic and the number of a partition, or both as one.
        """
        return self._assignment.position(where_of(topic, partition))

    def seek(
        self, topic: str | Partition, partition: int | None = None, offset: int | None = None
    ) -> None:
        """Continue at ``offset``, which may be EARLIEST or LATEST, in an assigned partition.

        Takes a topic, a partition and an offset, or a partition as one and an offset.
        """
        self._assignment.seek(*where_and_value(topic, partition, offset, "offset"))

    def seek_to_beginning(self, partitions: Iterable[Partition] | None = None) -> None:
        """Continue at the first record there is, by default of all assigned partitions."""
        for partition in self._assigned(partitions):
            self._assignment.seek(partition, EARLIEST)

    def seek_to_end(self, partitions: Iterable[Partition] | None = None) -> None:
        """Continue after the last record, by default of all assigned partitions."""
        for partition in self._assigned(partitions):
            self._assignment.seek(partition, LATEST)

    def _assigned(self, partitions: Iterable[Partition] | None) -> list[TopicPartition]:
        """Return ``partitions``, by default all; raise QbusError if one is not assigned."""
        wanted = self.assignment if partitions is None else [TopicPartition(*p) for p in partitions]
        for partition in wanted:
            self._assignment.assigned(partition)
        return wanted

    async def seek_past(self, error: CorruptBatch) -> int:
        """Continue behind the corrupt batch that a poll raised ``error`` for.

        Returns the number of offsets that are skipped, and never read. Raises
        :class:`~qbus.errors.ApiError`, and :class:`~qbus.errors.QbusError` when the partition is
        not assigned.
        """
        if error.topic is None or error.partition is None or error.offset is None:
            raise ConfigError(f"the error does not say where the batch is: {error}")
        where = TopicPartition(error.topic, error.partition)
        self._assignment.assigned(where)
        most = self._options.batch_max_bytes
        found = await readable_after(self._cluster, where, error.offset, most)
        self._assignment.seek(where, found)
        return found - error.offset

    async def seek_to_time(
        self, topic: str | Partition, partition: int | None = None, timestamp: int | None = None
    ) -> None:
        """Continue at the first record from a time on, in milliseconds since the Unix epoch.

        Continues after the last record if there is none so late. Takes the partition as
        :meth:`seek`.
        """
        where, timestamp = where_and_value(topic, partition, timestamp, "timestamp")
        self._assignment.assigned(where)
        found = (await self._offsets({where: timestamp}))[where]
        if found.offset < 0:
            found = (await self._offsets({where: LATEST}))[where]
        self._assignment.seek(where, found.offset)

    def seek_to_committed(self, partitions: Iterable[Partition] | None = None) -> None:
        """Continue where the group has committed, by default in all assigned partitions.

        That is what an aborted transaction is done again from. Without a committed offset
        ``offset_reset`` decides.
        """
        self._require_group()
        for partition in self._assigned(partitions):
            self._assignment.seek_to_committed(partition)
        self._changed.set()

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Return no records of these partitions, which stay assigned, until :meth:`resume`."""
        for partition in self._assigned(partitions):
            state = self._assignment.assigned(partition)
            state.is_paused = True
            state.close_cursor()

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Return records of these partitions again."""
        for partition in self._assigned(partitions):
            self._assignment.assigned(partition).is_paused = False
        self._changed.set()

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        states = self._assignment.states.items()
        return sorted(partition for partition, state in states if state.is_paused)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return the number of unread records of each assigned partition with a position."""
        known = {
            partition: position
            for partition in self._assignment
            if (position := self._assignment.position(partition)) is not None
        }
        ends = await self.end_offsets(known)
        return {
            partition: max(ends[partition] - position, 0)
            for partition, position in known.items()
            if partition in ends
        }

    async def offsets_for_times(
        self, times: Mapping[Any, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after a time in milliseconds since the Unix epoch.

        Offset and timestamp are -1 where there is none.
        """
        return await self._offsets(keyed(times))

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each of ``partitions``."""
        found = await self._offsets(dict.fromkeys(named(partitions), EARLIEST))
        return {partition: at.offset for partition, at in found.items()}

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each of ``partitions`` will have.

        With ``isolation_level="read_committed"``: the first offset that may not be read yet.
        """
        found = await self._offsets(dict.fromkeys(named(partitions), LATEST))
        return {partition: at.offset for partition, at in found.items()}

    async def _offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return what the leaders know; where the reader's isolation ends is the end."""
        return await list_offsets(self._cluster, times, committed=self._options.read_committed)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of ``topic``; raise UNKNOWN_TOPIC_OR_PARTITION."""
        await self._cluster.need([topic])
        description = self._cluster.metadata.topic(topic)
        return [TopicPartition(topic, part.index) for part in description.partitions]

    # Offsets of the group.

    async def commit(self, offsets: Mapping[Any, int | OffsetAndMetadata] | None = None) -> None:
        """Commit ``offsets``, by default the positions: everything that polls returned.

        They are by partition, as a :class:`TopicPartition` or a pair.

        Raises :class:`~qbus.errors.ApiError`; after ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and
        REBALANCE_IN_PROGRESS another member may have the partitions.
        """
        if wanted := self._to_commit(offsets):
            await self._coordinator.commit(wanted)

    def commit_nowait(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | None = None
    ) -> asyncio.Future[None]:
        """Start a :meth:`commit` without waiting; the returned future need not be awaited."""
        return self._coordinator.commit(self._to_commit(offsets))

    def _to_commit(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._require_group()
        return self._assignment.to_commit() if offsets is None else committable(offsets)

    async def committed(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed for ``partitions``, by default the assigned ones."""
        wanted = self.assignment if partitions is None else [TopicPartition(*p) for p in partitions]
        return await fetch_committed(self._cluster, self._require_group().group, wanted)

    def group_metadata(self) -> GroupMetadata:
        """Return the group, and as which member this consumer commits in it."""
        member_id, generation, instance_id = self._coordinator.membership
        return GroupMetadata(self._require_group().group, member_id, generation, instance_id)

    def consumed(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the positions that are not committed yet, and :meth:`group_metadata`.

        Raises :class:`~qbus.errors.ConfigError` if the consumer commits them by itself.
        """
        if self._options.auto_commit is not None:
            raise ConfigError("a consumer that commits by itself: it needs auto_commit=False")
        return self._assignment.to_commit(), self.group_metadata()

    async def close(self, *, commit: bool = True) -> None:
        """Commit if that is automatic (unless told not to), leave the group, close."""
        self._turn = Turn()
        await self._fetcher.close()
        try:
            await self._coordinator.close(commit)
        finally:
            await self._cluster.close()

    def _require_group(self) -> GroupOptions:
        if not self._group:
            raise ConfigError("offsets are kept in a group, and the consumer has none")
        return self._group
