"""What a consumer has to say of records, kept until a broker has taken it. Pure."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, TypeVar

from ..types import TopicPartition


class AckType(IntEnum):
    """What is said of a record (the protocol's numbers)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


NO_DELAY = -1
"""In place of a delay: as the group's back-off says."""


class Ack(NamedTuple):
    """What is said of the record at an offset, or of ``size`` in a row from there on.

    ``delay_ms``: for so long a released record is not given out. ``result``: what came of an
    accepted job. ``is_nack``: it is released because work on it failed. ``told`` gets the outcome,
    None or an error; without it a loss is reported.
    """

    offset: int
    type: AckType
    delay_ms: int = NO_DELAY
    result: bytes | None = None
    is_nack: bool = False
    told: "asyncio.Future[None] | None" = None
    size: int = 1

    @property
    def last(self) -> int:
        """The offset of the last record."""
        return self.offset + self.size - 1

    def singles(self) -> "list[Ack]":
        """Return the same, record by record."""
        if self.size == 1:
            return [self]
        return [self._replace(offset=self.offset + index, size=1) for index in range(self.size)]


Acks = Mapping[TopicPartition, list[Ack]]
"""What one request says, by partition, in the order of the offsets."""


class AckRange(NamedTuple):
    """The same, of a range of offsets; one type for all of them, or one for each."""

    first: int
    last: int
    types: list[int]
    delay_ms: int
    result: bytes | None = None
    is_nack: bool = False


def ranges_of(acks: Iterable[Ack]) -> list[AckRange]:
    """Return acknowledgements, in the order of their offsets, as few ranges."""
    ranges: list[AckRange] = []
    run: list[Ack] = []
    for ack in acks:
        if run and not _goes_on(run[-1], ack):
            ranges.append(_range_of(run))
            run = []
        run.append(ack)
    if run:
        ranges.append(_range_of(run))
    return ranges


def _goes_on(before: Ack, ack: Ack) -> bool:
    if ack.result is not None or before.result is not None:
        return False
    is_next = ack.offset == before.last + 1
    return is_next and (ack.delay_ms, ack.is_nack) == (before.delay_ms, before.is_nack)


def _range_of(run: list[Ack]) -> AckRange:
    first, last = run[0], run[-1]
    types = [int(first.type)]
    if any(ack.type != first.type for ack in run):
        types = [int(ack.type) for ack in run for _ in range(ack.size)]
    return AckRange(
        first.offset, last.last, types, first.delay_ms, first.result, is_nack=first.is_nack
    )


class _Chunk:
    """What goes in one request, one thing of each record; a closed one takes no more."""

    def __init__(self, acks: Iterable[Ack] = (), *, is_closed: bool = False) -> None:
        self.acks: dict[int, Ack] = {}
        self.is_closed = is_closed
        self._last = -1  # the last offset of which something is said
        self._rows: list[Ack] = []  # those of several records
        for ack in acks:
            self.add(ack)

    def has_room(self, ack: Ack) -> bool:
        """Whether this may be said too: it takes more, and nothing is said of these records."""
        if self.is_closed:
            return False
        if ack.offset > self._last:
            return True  # as nearly always
        if any(row.offset <= ack.last and row.last >= ack.offset for row in self._rows):
            return False
        if ack.size == 1:
            return ack.offset not in self.acks
        return not any(ack.offset <= offset <= ack.last for offset in self.acks)

    def add(self, ack: Ack) -> None:
        """Say this too."""
        self.acks[ack.offset] = ack
        self._last = max(self._last, ack.last)
        if ack.size > 1:
            self._rows.append(ack)


T = TypeVar("T")


class PendingAcks:
    """The acknowledgements for one broker, in the order in which they were given.

    A broker takes all that a request says of a partition, or nothing. So what it refused is halved
    and said again, until what it refuses is one record.
    """

    def __init__(self) -> None:
        self._chunks: dict[TopicPartition, deque[_Chunk]] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, partition: TopicPartition, ack: Ack) -> None:
        """Keep an acknowledgement until :meth:`take`."""
        self.add_all(partition, (ack,))

    def add_all(self, partition: TopicPartition, acks: Iterable[Ack]) -> None:
        """Keep acknowledgements until :meth:`take`."""
        chunks = self._chunks.setdefault(partition, deque())
        for ack in acks:
            if not chunks or not chunks[-1].has_room(ack):
                chunks.append(_Chunk())
            chunks[-1].add(ack)

    def take(
        self, among: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[Ack]]:
        """Return what is to be said next, of the partitions ``among`` (None: all)."""
        wanted = list(self._chunks if among is None else among)
        return {p: self._next(p) for p in wanted if p in self._chunks}

    def is_awaited(self, among: Iterable[TopicPartition]) -> bool:
        """Whether somebody waits for the outcome of what :meth:`take` would return."""
        return any(
            ack.told is not None
            for partition in among
            if (chunks := self._chunks.get(partition))
            for ack in chunks[0].acks.values()
        )

    def take_renewals(self) -> list[tuple[TopicPartition, Ack]]:
        """Return all renewals of locks, and nothing else: the broker does not know them."""
        renewals = []
        for partition, chunks in list(self._chunks.items()):
            for chunk in chunks:
                found = [ack for ack in chunk.acks.values() if ack.type is AckType.RENEW]
                for ack in found:
                    del chunk.acks[ack.offset]
                    renewals.append((partition, ack))
            left = deque(chunk for chunk in chunks if chunk.acks)
            if left:
                self._chunks[partition] = left
            else:
                del self._chunks[partition]
        return renewals

    def take_all(self) -> list[tuple[TopicPartition, Ack]]:
        """Return everything: there is nobody to say it to."""
        everything = [
            (partition, ack)
            for partition, chunks in self._chunks.items()
            for chunk in chunks
            for ack in chunk.acks.values()
        ]
        self._chunks.clear()
        return everything

    def refused(self, partition: TopicPartition, acks: list[Ack]) -> bool:
        """Keep refused ones, in two halves; return False if it is but one, which is lost."""
        acks = [single for ack in acks for single in ack.singles()]
        if len(acks) < 2:
            return False
        middle = len(acks) // 2
        chunks = self._chunks.setdefault(partition, deque())
        chunks.appendleft(_Chunk(islice(acks, middle, None), is_closed=True))
        chunks.appendleft(_Chunk(islice(acks, middle), is_closed=True))
        return True

    def _next(self, partition: TopicPartition) -> list[Ack]:
        chunks = self._chunks[partition]
        acks = chunks.popleft().acks
        if not chunks:
            del self._chunks[partition]
        return [acks[offset] for offset in sorted(acks)]
