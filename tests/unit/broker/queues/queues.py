"""A partition with queues: a real log and partition, a clock that tests set, and no network."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from qbus.broker.dead_letters import DeadLetters
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.broker.queues import (
    AckRange,
    AckType,
    GroupSettings,
    QueueFold,
    ShareQueue,
    TakenBatches,
)
from qbus.broker.queues.fold import GroupProgress
from qbus.broker.queues.taking import Offer, Terms
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, Record, iter_batches, iter_records
from qbus.records.encode import encode_records
from qbus.records.record import Headers
from tests.support.data_plane import DataPlane
from tests.support.logs import transactional
from tests.support.waiting import eventually

GROUP = "workers"
SETTINGS = GroupSettings(auto_offset_reset="earliest")


class DeadLetterBox:
    """Keeps what is given up, or fails."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, Record]] = []
        self.error: ApiError | None = None
        self.most_bytes = 1 << 30

    async def write(self, topic: str, batch: bytearray) -> None:
        """Be the dead letter topic. Raises ApiError."""
        if self.error is not None:
            raise self.error
        if len(batch) > self.most_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")
        self.letters += [(topic, record) for record in iter_records(bytes(batch))]


class World:
    """One partition that is led here, and its queues."""

    def __init__(self, directory: Path) -> None:
        self.plane = DataPlane(directory)
        self.clock = self.plane.clock
        self.box = DeadLetterBox()
        self.plane.dead_letters = cast("DeadLetters", self.box)

    async def start(self, **config: Any) -> None:
        """Open it, with these settings of the topic."""
        await self.plane.start()
        await self.plane.create("jobs", **config)

    async def restart(self) -> None:
        """Stop, and start again."""
        await self.plane.restart()

    @property
    def partition(self) -> Partition:
        return self.plane.partition("jobs")

    @property
    def fold(self) -> QueueFold:
        fold = self.partition.log.fold.part(QueueFold)
        assert fold is not None
        return fold

    def progress(self, group: str = GROUP) -> GroupProgress:
        return self.fold.groups[group]

    def queue(
        self, group: str = GROUP, settings: GroupSettings = SETTINGS, **changes: Any
    ) -> ShareQueue:
        """The queue of a group, with settings that differ in ``changes``."""
        self.last_settings = replace(settings, **changes)
        return self.plane.queues.queue(self.partition, group, self.last_settings)

    async def add(
        self,
        *values: bytes,
        headers: Mapping[str, str] | None = None,
        compression: Compression = Compression.NONE,
        timestamp: int | None = None,
    ) -> int:
        """Append one batch; its first offset, when it is acknowledged."""
        items = [(name, text.encode()) for name, text in (headers or {}).items()]
        batch = encode_records(
            list(values),
            headers=[items] * len(values),
            base_timestamp=self.clock.time_ms() if timestamp is None else timestamp,
            compression=compression,
        )
        info = self.partition.append(memoryview(batch), ACKS_ALL)
        await eventually(lambda: self.partition.high_watermark > info.last_offset)
        return info.first_offset

    async def pass_time(self, queue: ShareQueue, seconds: float) -> None:
        """Let time pass, and have the queue look at the clock."""
        self.clock.advance(seconds)
        queue.look()
        await self.settled()

    async def until_moved(self, count: int) -> None:
        """Wait until so many records were moved to the dead letter topic, and are done."""
        queue = self.plane.queues.queue(self.partition, GROUP, self.last_settings)
        await eventually(lambda: queue.counts.dead_letters == count)

    async def settled(self) -> None:
        """Wait until all that was begun is stored and acknowledged."""
        partition = self.partition
        await asyncio.sleep(0)  # what was begun is stored at the end of the loop's turn
        await eventually(lambda: partition.high_watermark == partition.log.log_end_offset)


async def in_transaction(world: World, value: bytes, producer_id: int) -> None:
    """Append a record of a producer's transaction, which is open then."""
    partition = world.partition
    asked = partition.begin_verification(producer_id, 0, 0)
    partition.append(transactional(value, producer_id=producer_id), 1, asked)
    await world.settled()


async def end(world: World, producer_id: int, *, committed: bool) -> None:
    """End a producer's transaction."""
    world.partition.end_transaction(producer_id, 0, 0, committed=committed)
    await world.settled()


class Taken(NamedTuple):
    """A record that was given out. ``deliveries`` counts this one, too."""

    offset: int
    value: bytes | None
    deliveries: int
    nacks: int
    timeouts: int


async def records(
    queue: ShareQueue,
    most: int = 100,
    member: str = "a",
    *,
    max_bytes: int = 1 << 20,
    by_headers: Callable[[Headers], Terms] | None = None,
) -> list[Taken]:
    """The records that ``member`` gets."""
    taken = await queue.take(Offer(member, most, max_bytes, by_headers))
    return [
        Taken(record.offset, record.value, before.deliveries + 1, before.nacks, before.timeouts)
        for record, before in zip(taken.records, taken.histories, strict=True)
    ]


async def take(queue: ShareQueue, most: int = 100, member: str = "a") -> list[bytes | None]:
    """The values of the records that ``member`` gets."""
    return [record.value for record in await records(queue, most, member)]


def once(headers: Headers) -> Terms:
    """How records are given out at most once: those that have any header."""
    return Terms(0, is_once=bool(headers))


async def accept(queue: ShareQueue, first: int, last: int = -1, member: str = "a") -> None:
    """Have ``member`` finish records."""
    await queue.acknowledge(member, [AckRange(first, max(first, last), AckType.ACCEPT)])


async def release(
    queue: ShareQueue, first: int, last: int = -1, member: str = "a", **how: Any
) -> None:
    """Have ``member`` give records back."""
    await queue.acknowledge(member, [AckRange(first, max(first, last), AckType.RELEASE, **how)])


async def reject(queue: ShareQueue, first: int, last: int = -1, member: str = "a") -> None:
    """Have ``member`` give records up."""
    await queue.acknowledge(member, [AckRange(first, max(first, last), AckType.REJECT)])


def sent(taken: TakenBatches) -> list[bytes | None]:
    """The values of the records that a client makes of what it is sent: those it acquired."""
    acquired = {
        offset
        for part in taken.acquired
        for offset in range(part.first_offset, part.last_offset + 1)
    }
    return [
        record.value
        for _, batch in iter_batches(taken.records)
        for record in iter_records(batch)
        if record.offset in acquired
    ]
