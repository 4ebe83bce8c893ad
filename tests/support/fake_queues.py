"""Queues without a log: a test puts records in, and sees what handlers do with them."""

from collections.abc import Sequence
from typing import Any

from qbus.broker.partition.partition import Partition
from qbus.broker.queues import (
    AckRange,
    AcquiredRange,
    GroupSettings,
    QueueCounts,
    QueueDescription,
    RecordState,
    RecordStatus,
    TakenBatches,
    Waiter,
)
from qbus.errors import ApiError, ErrorCode


class FakeQueue:
    """What one group takes of one partition: whole batches, each at a time to one member."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.settings = GroupSettings()
        self.batches: list[tuple[int, int, bytes]] = []  # first and last offset
        self.held: dict[int, str] = {}  # offset -> member
        self.acknowledged: list[AckRange] = []
        self.settled: dict[int, bytes | None] = {}
        self.released: list[str] = []
        self.waiting: list[Waiter] = []
        self.asked: list[dict[str, Any]] = []
        self.error: ApiError | None = None
        self.start: int | None = 0
        self.is_late = False  # what is settled is done already

    @property
    def start_offset(self) -> int:
        return self.start or 0

    def put(self, first: int, last: int, data: bytes = b"batch") -> None:
        """Have a batch available."""
        self.batches.append((first, last, data))
        self.call()

    def call(self) -> None:
        """Call the first of those who wait."""
        while self.waiting and not self.waiting.pop(0).ready(self):
            pass

    async def take_batches(
        self, member: str, *, max_records: int, max_bytes: int, min_one: bool, exact: bool
    ) -> TakenBatches:
        self.asked.append(
            {"max_records": max_records, "max_bytes": max_bytes, "min_one": min_one, "exact": exact}
        )
        if self.error is not None:
            raise self.error
        if not self.batches:
            return TakenBatches(b"", [])
        first, last, data = self.batches.pop(0)
        self.held |= dict.fromkeys(range(first, last + 1), member)
        return TakenBatches(data, [AcquiredRange(first, last, 1)])

    async def acknowledge(self, member: str, ranges: Sequence[AckRange]) -> None:
        for one in ranges:
            there = range(max(one.first, self.start_offset), one.last + 1)
            if any(self.held.get(offset) != member for offset in there):
                raise ApiError(ErrorCode.INVALID_RECORD_STATE)
        self.acknowledged += ranges

    async def settle(self, offset: int, result: bytes | None = None) -> bool:
        if self.is_late:
            return False
        self.settled[offset] = result
        return True

    def state_of(self, offset: int) -> RecordState:
        return RecordState(RecordStatus.ACTIVE, member=self.held.get(offset, ""))

    async def release_member(self, member: str) -> None:
        self.released.append(member)

    def wait(self, waiter: Waiter, *, again: bool = False) -> None:
        self.waiting.insert(0 if again else len(self.waiting), waiter)
        if self.batches:
            self.call()

    def forget(self, waiter: Waiter) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)


class FakeQueueService:
    """The queues of all partitions that are led here."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int, str], FakeQueue] = {}

    def of(self, topic: str, group: str = "g", index: int = 0) -> FakeQueue:
        """The queue of a partition, made if there is none."""
        return self.queues.setdefault((topic, index, group), FakeQueue(group))

    def queue(self, partition: Partition, group: str, settings: GroupSettings) -> FakeQueue:
        queue = self.of(partition.topic, group, partition.index)
        queue.settings = settings
        return queue

    def groups(self, partition: Partition) -> list[str]:
        place = partition.topic, partition.index
        return [group for *found, group in self.queues if tuple(found) == place]

    def describe(self, partition: Partition, group: str) -> QueueDescription | None:
        queue = self.queues.get((partition.topic, partition.index, group))
        if queue is None or queue.start is None:
            return None
        return QueueDescription(queue.start, 5, 2, 1, 1000, QueueCounts(taken=9, acknowledged=7))

    def describe_unused(
        self,
        partition: Partition,
        settings: GroupSettings,
    ) -> QueueDescription:
        return QueueDescription(-1, 0, 0, 0, -1, QueueCounts())

    async def set_start(self, partition: Partition, group: str, offset: int) -> None:
        self.of(partition.topic, group, partition.index).start = offset

    async def delete(self, partition: Partition, group: str) -> None:
        del self.queues[partition.topic, partition.index, group]
