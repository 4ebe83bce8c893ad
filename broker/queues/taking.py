"""What is taken at a time: records one by one, or whole batches."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from qbus.records import ConsumerRecord
from qbus.records.control import History
from qbus.records.record import Headers

from .batches import StoredBatch
from .settlement import Given
from .types import AcquiredRange, TakenBatches

_RECORD_BYTES: Final = 64  # that a record takes besides its key and value


class Terms(NamedTuple):
    """How a record is given out: for how long, 0: as the settings say; whether it is done before.

    In milliseconds.
    """

    lock_ms: int
    is_once: bool


class Offer:
    """Whom records are given to: up to ``most``, and none beyond ``max_bytes``.

    ``by_headers``: how each is given out, where its headers say that.
    """

    __slots__ = ("by_headers", "max_bytes", "member", "most")

    def __init__(
        self,
        member: str,
        most: int,
        max_bytes: int,
        by_headers: Callable[[Headers], Terms] | None = None,
    ) -> None:
        self.member = member
        self.most = most
        self.max_bytes = max_bytes
        self.by_headers = by_headers


class Once(NamedTuple):
    """A record that may be given out when it is done.

    ``at``: the number of it among records that are taken, or its offset, where batches are.
    """

    at: int
    acknowledged: "asyncio.Future[None]"


class RecordsTaken:
    """Records that are being taken for one member.

    ``histories``: what each went through before this delivery.
    """

    __slots__ = ("histories", "offer", "once", "records", "size")

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.records: list[ConsumerRecord] = []
        self.histories: list[History] = []
        self.once: list[Once] = []
        self.size = 0

    @property
    def left(self) -> int:
        """How many more may be taken."""
        if self.size >= self.offer.max_bytes:
            return 0
        return self.offer.most - len(self.records)

    def add(self, record: ConsumerRecord) -> None:
        """Count in a record that is given out; its history follows."""
        self.records.append(record)
        _, _, _, _, key, value, _, _ = record
        size = self.size + _RECORD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        self.size = size

    def add_histories(self, given: Given) -> None:
        """Add the history of records that were counted in."""
        first, last, history = given
        if first == last:
            self.histories.append(history)
        else:
            self.histories += [history] * (last - first + 1)

    def add_once(self, history: History, acknowledged: "asyncio.Future[None]") -> None:
        """Likewise of the last record, which is given out when ``acknowledged`` is done."""
        self.once.append(Once(len(self.histories), acknowledged))
        self.histories.append(history)

    async def stored(self) -> None:
        """Wait until what is given out once is done for good, and leave out what may not be.

        Raises ApiError where nothing is left.
        """
        if not self.once:
            return
        waiting = [one.acknowledged for one in self.once]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        failed: set[int] = set()
        error: BaseException | None = None
        for one, outcome in zip(self.once, outcomes, strict=True):
            if outcome is not None:
                failed.add(one.at)
                error = outcome
        if error is None:
            return
        left = [number for number in range(len(self.records)) if number not in failed]
        if not left:
            raise error
        self.records = [self.records[number] for number in left]
        self.histories = [self.histories[number] for number in left]


class _Part(NamedTuple):
    """Of a batch, the records that are taken lie from offset ``first`` to ``last``."""

    batch: StoredBatch
    first: int
    last: int


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
        self._batches: dict[int, _Part] = {}
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
        if not parts:
            return
        base = batch.header.base_offset
        known = self._batches.get(base)
        first, last = parts[0].first, parts[-1].last  # they ascend
        if known is None:
            self._size += len(batch.raw)
        else:
            first, last = min(first, known.first), max(last, known.last)
        self._batches[base] = _Part(batch, first, last)
        for low, high, history in parts:
            self.acquired.append(AcquiredRange(low, high, history.deliveries + 1))
            self.left -= high - low + 1

    def leave_out(self, offset: int) -> None:
        """Do not give out a record of ``once``, for it is not known to be done."""
        self.acquired = [one for one in self.acquired if one.first_offset != offset]

    def result(self) -> TakenBatches:
        """All that was taken, ascending.

        Of a large batch of which little was taken, that part alone: whoever takes it bit by bit
        would be sent all of it each time.
        """
        merged: list[AcquiredRange] = []
        for part in sorted(self.acquired):
            if merged and merged[-1].last_offset + 1 == part.first_offset:
                before = merged[-1]
                if before.delivery_count == part.delivery_count:
                    merged[-1] = before._replace(last_offset=part.last_offset)
                    continue
            merged.append(part)
        parts = (self._batches[base] for base in sorted(self._batches))
        records = b"".join(part.batch.part(part.first, part.last) for part in parts)
        return TakenBatches(records, merged)
