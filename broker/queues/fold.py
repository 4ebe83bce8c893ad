"""What a partition's hidden batches say about its queues: what each share group has done.

It is a pure function of the SHARED and RESULT records of the log (:mod:`qbus.records.control`), in
their order; followers know it as the leader does, so there is nothing to load after a failover.
What says of a record comes after it: so what retention leaves has its whole history, and what lies
before the log's start counts as done.

Content of a snapshot, all integers big-endian: the number of groups (4 bytes); for each the length
of its name (2), the name in UTF-8, its start (8), where it was mentioned last (8), and the numbers
of done ranges, returned ranges and results (4 each); then the first and last offsets of each done
range (8 each), for each returned one those and its history as in a SHARED record, and for each
result the record's offset and the place of the RESULT record (8 each).
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from qbus.errors import CorruptBatch
from qbus.records import BatchHeader, Buffer
from qbus.records.control import (
    HISTORY_SIZE,
    Announcement,
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    History,
    decode_history,
    decode_result,
    decode_shared,
    encode_history,
)

from ..log.controls import Fold
from .ranges import RangeMap

F = TypeVar("F")

MOST_RESULTS: Final = 250_000
"""Of how many records of a group the results are known: those with the highest offsets."""

_FORGOTTEN_AT_ONCE: Final = 1_000  # results beyond that

_COUNT: Final = struct.Struct(">I")
_NAME: Final = struct.Struct(">H")
_GROUP: Final = struct.Struct(">qqIII")
_RANGE: Final = struct.Struct(">qq")


class Results:
    """Where the results of records that are done lie, by the records' offsets: 16 bytes each."""

    __slots__ = ("_offsets", "_places")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._places = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Offsets and places, ascending by offset."""
        return iter(list(zip(self._offsets, self._places, strict=True)))

    def add(self, offset: int, place: int) -> None:
        """The result of the record at ``offset`` is at ``place``; too many: the lowest go."""
        offsets, places = self._offsets, self._places
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            places.append(place)
        else:
            at = bisect_left(offsets, offset)
            if offsets[at] == offset:
                places[at] = place
            else:
                offsets.insert(at, offset)
                places.insert(at, place)
        if len(offsets) >= MOST_RESULTS + _FORGOTTEN_AT_ONCE:
            del offsets[:_FORGOTTEN_AT_ONCE], places[:_FORGOTTEN_AT_ONCE]

    def get(self, offset: int) -> int | None:
        """Where the result of the record at ``offset`` is, if it is known."""
        at = bisect_left(self._offsets, offset)
        if at < len(self._offsets) and self._offsets[at] == offset:
            return self._places[at]
        return None


class GroupProgress:
    """What one share group has done with the records of a partition.

    ``start``: everything before it is done. ``done``: what is done behind it. ``returned``: what is
    to be given out again. ``results``: the place of the RESULT record of a record that is done.
    ``begun_at``: the offset of the control record that it began with; -1: that is long ago.
    ``mentioned_at``: that of the last one that changed any of this.
    """

    __slots__ = ("begun_at", "done", "mentioned_at", "results", "returned", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.done: RangeMap[bool] = RangeMap()
        self.returned: RangeMap[History] = RangeMap()
        self.results = Results()
        self.begun_at = -1
        self.mentioned_at = -1

    def is_done(self, offset: int) -> bool:
        """Whether the record at ``offset`` is done."""
        return offset < self.start or self.done.at(offset) is not None

    def apply(self, change: Change) -> None:
        """Take in a change of any kind but STARTED and FORGOTTEN, which concern the whole group."""
        if change.kind is ChangeKind.RETURNED:
            first = max(change.first, self.start)
            if first <= change.last:
                for low, high in self.done.gaps(first, change.last):
                    self.returned.set(low, high, change.history)
        elif change.kind in {ChangeKind.ACKNOWLEDGED, ChangeKind.ARCHIVED}:
            self._finish(max(change.first, self.start), change.last)

    def _finish(self, first: int, last: int) -> None:
        if first > last:
            return
        if self.returned.size:
            self.returned.cut(first, last)
        if first > self.start:
            self.done.set(first, last, True)
            return
        start = last + 1
        if self.done.size:
            following = self.done.find(start)
            if following is not None:
                start = following.last + 1
            self.done.cut(self.start, start - 1)
        self.start = start


class QueueFold:
    """What all share groups have done with the records of one partition, by the group's name."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[str, GroupProgress] = {}

    def part(self, kind: type[F]) -> F | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self if isinstance(self, kind) else None

    @property
    def needed_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return None

    @property
    def done_before(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return min((group.start for group in self.groups.values()), default=None)

    @property
    def told_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return min((group.mentioned_at for group in self.groups.values()), default=None)

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`: delayed records are none of queues yet."""

    def delivered(self, announcement: Announcement) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`: delivered records are as all others."""

    def control(self, record: ControlRecord) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        if record.type is ControlType.SHARED:
            group, changes = decode_shared(record.value)
            for change in changes:
                self._apply(group, change, record.offset)
            if not changes:
                self._mention(group, record.offset)
        elif record.type is ControlType.RESULT:
            result = decode_result(record.value)
            progress = self.groups.get(result.group)
            if progress is not None:
                progress.results.add(result.offset, record.offset)

    def _apply(self, name: str, change: Change, place: int) -> None:
        if change.kind is ChangeKind.FORGOTTEN:
            self.groups.pop(name, None)
            return
        progress = self.groups.get(name)
        if progress is None or change.kind is ChangeKind.STARTED:
            begins_at = change.first if change.kind is ChangeKind.STARTED else 0
            progress = self.groups[name] = GroupProgress(begins_at)
            progress.begun_at = place
        progress.apply(change)
        progress.mentioned_at = place

    def _mention(self, name: str, place: int) -> None:
        """There is such a group, which may have done nothing yet."""
        progress = self.groups.get(name)
        if progress is None:
            progress = self.groups[name] = GroupProgress()
            progress.begun_at = place
        progress.mentioned_at = place

    def succeed(self, former: Fold) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`.

        Groups are still known. What they did with records that are left is in the rest of the log.
        """
        known = former.part(QueueFold)
        if known is not None:
            self.groups = {name: GroupProgress(one.start) for name, one in known.groups.items()}

    def encode(self) -> Sequence[Buffer]:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        parts: list[Buffer] = [_COUNT.pack(len(self.groups))]
        for name, group in self.groups.items():
            encoded = name.encode()
            counts = (len(group.done), len(group.returned), len(group.results))
            parts += (
                _NAME.pack(len(encoded)),
                encoded,
                _GROUP.pack(group.start, group.mentioned_at, *counts),
            )
            parts += [_RANGE.pack(span.first, span.last) for span in group.done]
            for span in group.returned:
                parts += (_RANGE.pack(span.first, span.last), encode_history(span.value))
            parts += [_RANGE.pack(offset, place) for offset, place in group.results]
        return parts

    def restore(self, content: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        data = bytes(content)
        groups: dict[str, GroupProgress] = {}
        try:
            (count,) = _COUNT.unpack_from(data)
            position = _COUNT.size
            for _ in range(count):
                position = _restore_group(groups, data, position)
        except (struct.error, CorruptBatch) as bad:
            raise ValueError(f"a snapshot of queues in {len(data)} bytes: {bad}") from bad
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes follow the snapshot of queues")
        self.groups = groups


def _restore_group(groups: dict[str, GroupProgress], data: bytes, position: int) -> int:
    """Take in a group of a snapshot; where it ends."""
    (length,) = _NAME.unpack_from(data, position)
    position += _NAME.size
    name = data[position : position + length].decode()
    position += length
    start, mentioned_at, done, returned, results = _GROUP.unpack_from(data, position)
    position += _GROUP.size
    group = groups[name] = GroupProgress(start)
    group.mentioned_at = mentioned_at
    for _ in range(done):
        first, last = _RANGE.unpack_from(data, position)
        position += _RANGE.size
        group.done.set(first, last, True)
    for _ in range(returned):
        first, last = _RANGE.unpack_from(data, position)
        position += _RANGE.size
        history = decode_history(data[position : position + HISTORY_SIZE])
        position += HISTORY_SIZE
        group.returned.set(first, last, history)
    for _ in range(results):
        offset, place = _RANGE.unpack_from(data, position)
        position += _RANGE.size
        group.results.add(offset, place)
    return position
