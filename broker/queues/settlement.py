"""What keeps records of a queue from being given out, and what was begun with them."""

from enum import IntEnum
from typing import Final, NamedTuple

from qbus.records.control import Change, ChangeKind, History

from .ranges import Span
from .types import AckRange, AckType, QueueCounts


class LeaseKind(IntEnum):
    """Why a record is not given out.

    MEMBER: a member has it. HELD: somebody asked that nobody gets it for a time. SETTLING: a
    control record about it is being stored. MOVING: it goes to the dead letter topic, or is
    dropped.
    """

    MEMBER = 0
    HELD = 1
    SETTLING = 2
    MOVING = 3


MEMBER: Final = LeaseKind.MEMBER
SETTLING: Final = LeaseKind.SETTLING


class Lease:
    """What keeps records from being given out, until a time of the clock that never goes back.

    ``history``: what they went through before this delivery.
    """

    __slots__ = ("history", "kind", "member", "until_ms")

    def __init__(self, kind: LeaseKind, member: str, until_ms: int, history: History) -> None:
        self.kind = kind
        self.member = member
        self.until_ms = until_ms
        self.history = history


class Place(IntEnum):
    """Where records were before something was begun with them."""

    FRESH = 0
    READY = 1
    WAITING = 2
    LEASED = 3


class Origin:
    """Records that something was begun with, and where they were: to put them back."""

    __slots__ = ("first", "history", "last", "lease", "place")

    def __init__(
        self, first: int, last: int, place: Place, history: History, lease: Lease | None = None
    ) -> None:
        self.first = first
        self.last = last
        self.place = place
        self.history = history
        self.lease = lease


class Given(NamedTuple):
    """Records given out, all with the same history before this delivery."""

    first: int
    last: int
    history: History


NO_COUNTS: Final = QueueCounts()


class Settlement(NamedTuple):
    """What was begun: control records to store, and where their records were.

    One of :meth:`QueueState.stored` and :meth:`QueueState.failed` follows. ``counts``: what is to
    be counted then, and ``acknowledged``: how many more count as that.
    """

    changes: list[Change]
    origins: list[Origin]
    counts: QueueCounts = NO_COUNTS
    acknowledged: int = 0


class Finishing:
    """Records that are being finished together, whoever has them: see :meth:`QueueState.finish`.

    ``count``: how many.
    """

    __slots__ = ("_origins", "_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._origins: list[Origin] = []
        self.count = 0

    def add(self, first: int, last: int, count: int, origins: list[Origin]) -> None:
        """Take in ``count`` neighbouring records, with the offsets beside them that have none."""
        self._ranges.append((first, last))
        self._origins += origins
        self.count += count

    def settlement(self) -> Settlement:
        """What is to be stored, neighbours in one change."""
        if len(self._ranges) == 1:
            first, last = self._ranges[0]
            changes = [Change(ChangeKind.ACKNOWLEDGED, first, last)]
            return Settlement(changes, self._origins, NO_COUNTS, self.count)
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._ranges):
            if merged and merged[-1][1] + 1 >= first:
                if last > merged[-1][1]:
                    merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        changes = [Change(ChangeKind.ACKNOWLEDGED, first, last) for first, last in merged]
        return Settlement(changes, self._origins, NO_COUNTS, self.count)


class Reason(IntEnum):
    """Why a record is archived that nobody has: BROKEN: it cannot be read, or is there no more.

    ONCE is none: it is a job that is given out once, and done before that.
    """

    FILTERED = 0
    EXPIRED = 1
    BROKEN = 2
    ONCE = 3


def counted(ack: AckRange, spans: list[Span[Lease]], changes: list[Change]) -> QueueCounts:
    """What is to be counted when ``changes``, the answers to ``ack``, are stored: no acceptance."""
    released = dropped = 0
    for span, change in zip(spans, changes, strict=True):
        count = span.last - span.first + 1
        if ack.type == AckType.RELEASE:
            released += count
        if ack.type != AckType.GAP and change.kind is ChangeKind.ARCHIVED:
            dropped += count
    return QueueCounts(released=released, dropped=dropped)


def sum_of(one: QueueCounts, other: QueueCounts) -> QueueCounts:
    """Both together."""
    if other is NO_COUNTS:
        return one
    return QueueCounts(*[a + b for a, b in zip(one, other, strict=True)])


def joined(changes: list[Change]) -> list[Change]:
    """The same changes, neighbours that say the same in one."""
    found: list[Change] = []
    for change in changes:
        if found:
            before = found[-1]
            if (
                before.kind is change.kind
                and before.history == change.history
                and before.last + 1 >= change.first >= before.first
            ):
                found[-1] = before._replace(last=max(before.last, change.last))
                continue
        found.append(change)
    return found
