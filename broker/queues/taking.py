"""What is taken at a time: records one by one, or whole batches."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from qbus.records import ConsumerRecord
from qbus.records.control import History

from .batches import StoredBatch
from .state import Given
from .types import AcquiredRange, TakenBatches, TakenRecord

_RECORD_BYTES: Final = 64  # that a record takes besides its key and value


class Offer(NamedTuple):
    """Whom records are given to, and how: see :meth:`ShareQueue.take_records`."""

    member: str
    most: int
    max_bytes: int
    lock_ms: Callable[[ConsumerRecord], int] | None
    at_most_once: bool | Callable[[ConsumerRecord], bool]

    def is_at_most_once(self, record: ConsumerRecord) -> bool:
        """Whether a record is done before it is given out."""
        if isinstance(self.at_most_once, bool):
            return self.at_most_once
        return self.at_most_once(record)


class Once(NamedTuple):
    """A record that may be given out when it is done.

    ``at``: the number of it among records that are taken, or its offset, where batches are.
    """

    at: int
    acknowledged: "asyncio.Future[None]"


class RecordsTaken:
    """Records that are being taken for one member."""

    __slots__ = ("offer", "once", "records", "size")

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.records: list[TakenRecord] = []
        self.once: list[Once] = []
        self.size = 0

    @property
    def left(self) -> int:
        """How many more may be taken."""
        if self.size >= self.offer.max_bytes:
            return 0
        return self.offer.most - len(self.records)

    def add(
        self,
        record: ConsumerRecord,
        history: History,
        acknowledged: "asyncio.Future[None] | None" = None,
    ) -> None:
        """Count in a record that is given out, when ``acknowledged`` is done if that is given."""
        if acknowledged is not None:
            self.once.append(Once(len(self.records), acknowledged))
        self.records.append(
            TakenRecord(
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                history.deliveries + 1,
                history.nacks,
                history.timeouts,
            )
        )
        self.size += _RECORD_BYTES
        if record.key is not None:
            self.size += len(record.key)
        if record.value is not None:
            self.size += len(record.value)

    async def result(self) -> list[TakenRecord]:
        """All that was taken, without what is not known to be done, though it should be.

        Raises ApiError where nothing is left.
        """
        if not self.once:
            return self.records
        waiting = [one.acknowledged for one in self.once]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        failed: set[int] = set()
        error: BaseException | None = None
        for one, outcome in zip(self.once, outcomes, strict=True):
            if outcome is not None:
                failed.add(one.at)
                error = outcome
        left = [record for number, record in enumerate(self.records) if number not in failed]
        if error is not None and not left:
            raise error
        return left


class BatchesTaken:
    """Batches that are being taken for one member."""

    __slots__ = (
        "_batches",
        "_max_bytes",
        "_min_one",
        "_size",
        "acquired",
        "is_exact",
        "left",
        "member",
        "once",
    )

    def __init__(
        self, member: str, max_records: int, max_bytes: int, min_one: bool, is_exact: bool
    ) -> None:
        self.member = member
        self.left = max_records
        self.is_exact = is_exact
        self.acquired: list[AcquiredRange] = []
        self.once: list[Once] = []
        self._batches: dict[int, bytes] = {}
        self._max_bytes = max_bytes
        self._min_one = min_one
        self._size = 0

    def has_room_for(self, batch: StoredBatch) -> bool:
        """Whether this batch may be taken, too."""
        if batch.header.base_offset in self._batches:
            return True
        if not self._batches and self._min_one:
            return True
        return self._size + len(batch.raw) <= self._max_bytes

    def add(self, batch: StoredBatch, parts: list[Given]) -> None:
        """Count in records of a batch that were given out."""
        base = batch.header.base_offset
        if base not in self._batches:
            self._batches[base] = batch.raw
            self._size += len(batch.raw)
        for first, last, history in parts:
            self.acquired.append(AcquiredRange(first, last, history.deliveries + 1))
            self.left -= last - first + 1

    def leave_out(self, offset: int) -> None:
        """Do not give out a record of ``once``, for it is not known to be done."""
        self.acquired = [one for one in self.acquired if one.first_offset != offset]

    def result(self) -> TakenBatches:
        """All that was taken, ascending."""
        merged: list[AcquiredRange] = []
        for part in sorted(self.acquired):
            if merged and merged[-1].last_offset + 1 == part.first_offset:
                before = merged[-1]
                if before.delivery_count == part.delivery_count:
                    merged[-1] = before._replace(last_offset=part.last_offset)
                    continue
            merged.append(part)
        records = b"".join(self._batches[base] for base in sorted(self._batches))
        return TakenBatches(records, merged)
