"""When the delayed records of a partition are due: a timing wheel of twelve bytes for each.

What is due within about two hours lies in slots of a tenth of a second, the rest in slots of an
hour, which are spread over small ones as their time comes near. So what is far costs nothing but
its place, and what is near is sorted in small pieces.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from qbus.records.control import Entries

NEAR_MS: Final = 100
_FAR_MS: Final = 3_600_000
_AHEAD: Final = 2  # hours that are spread before they begin

_OFFSET_BITS: Final = 42
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
MAX_OFFSET: Final = _OFFSET_MASK
"""The largest offset at which a delayed record may lie."""

_ALL: Final = 1 << 62
_MANY: Final = 1_000  # slots that are not tried one by one
_FEW: Final = 8  # entries that are looked for one by one


class Held(NamedTuple):
    """A delayed record: its due time in milliseconds, where it lies, and the hash of its key."""

    due: int
    offset: int
    key_hash: int


class Slot:
    """The records that are due within one stretch of time.

    An entry is the due time, in milliseconds from ``start``, before the offset in 42 bits: so
    ascending entries are in the order in which they are due, and in the log's where that is one.
    """

    __slots__ = ("_is_sorted", "_least", "entries", "hashes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.entries: array[int] = array("Q")
        self.hashes: array[int] = array("I")
        self._is_sorted = True
        self._least = -1  # the first entry in order, if it is known

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, due: int, offset: int, key_hash: int) -> None:
        """Put a record in."""
        entry = (due - self.start) << _OFFSET_BITS | offset
        entries = self.entries
        if not len(entries) or entry < self._least:
            self._least = entry
        if self._is_sorted and len(entries) and entry < entries[-1]:
            self._is_sorted = False
        entries.append(entry)
        self.hashes.append(key_hash)

    def find(self, due: int, offset: int) -> int:
        """The place of a record, or -1."""
        entry = (due - self.start) << _OFFSET_BITS | offset
        if self.entries and self.entries[0] == entry:
            return 0
        if len(self.entries) <= _FEW:
            return self.entries.index(entry) if entry in self.entries else -1
        pattern, data = array("Q", (entry,)).tobytes(), self.entries.tobytes()
        at = data.find(pattern)
        while at >= 0 and at % 8:
            at = data.find(pattern, at + 1)
        return at // 8 if at >= 0 else -1

    def remove(self, due: int, offset: int) -> int | None:
        """Take a record out; the hash of its key, or None if it is not here."""
        at = self.find(due, offset)
        if at < 0:
            return None
        key_hash = self.hashes[at]
        if self.entries[at] == self._least:
            self._least = -1
        del self.entries[at], self.hashes[at]
        return key_hash

    def remove_all(self, wanted: set[int]) -> dict[int, int]:
        """Take the entries ``wanted`` out; those that were here, with the hashes of their keys."""
        found: dict[int, int] = {}
        entries: array[int] = array("Q")
        hashes: array[int] = array("I")
        for entry, key_hash in zip(self.entries, self.hashes, strict=True):
            if entry in wanted:
                found[entry] = key_hash
            else:
                entries.append(entry)
                hashes.append(key_hash)
        self.entries, self.hashes = entries, hashes
        self._least = -1
        return found

    def entry(self, due: int, offset: int) -> int:
        """A record in the form in which the slot holds it."""
        return (due - self.start) << _OFFSET_BITS | offset

    def held(self, at: int) -> Held:
        """The record at a place."""
        entry = self.entries[at]
        return Held(self.start + (entry >> _OFFSET_BITS), entry & _OFFSET_MASK, self.hashes[at])

    def sort(self) -> None:
        """Bring the entries into the order in which they are due."""
        if not self._is_sorted:
            entries, hashes = self.entries, self.hashes
            order = sorted(range(len(entries)), key=entries.__getitem__)
            self.entries = array("Q", [entries[at] for at in order])
            self.hashes = array("I", [hashes[at] for at in order])
            self._is_sorted = True

    def take_last(self, count: int) -> list[Held]:
        """Take out the last ``count`` entries, or all."""
        first = max(len(self.entries) - count, 0)
        taken = [self.held(at) for at in range(first, len(self.entries))]
        del self.entries[first:], self.hashes[first:]
        self._least = -1
        return taken

    def first_due(self) -> int:
        """When the first of its records is due; there is at least one."""
        if self._least < 0:
            self._least = self.entries[0] if self._is_sorted else min(self.entries)
        return self.start + (self._least >> _OFFSET_BITS)

    def restore(self, entries: bytes, hashes: bytes) -> None:
        """Hold what ``entries.tobytes()`` and ``hashes.tobytes()`` were."""
        self.entries.frombytes(entries)
        self.hashes.frombytes(hashes)
        self._is_sorted = False


class Schedule:
    """All delayed records of a partition by the time at which they are due."""

    __slots__ = ("_far", "_far_keys", "_near", "_near_hour", "_near_keys", "count", "moves")

    def __init__(self) -> None:
        self.count = 0
        self.moves = 0  # how often records went from one slot to another
        self._near: dict[int, Slot] = {}
        self._near_keys: list[int] = []  # a heap, with keys of slots that are gone in it
        self._far: dict[int, Slot] = {}
        self._far_keys: list[int] = []  # a heap likewise
        self._near_hour = 0  # hours before it are spread over small slots

    def add(self, due: int, offset: int, key_hash: int) -> None:
        """Put a record in: due at ``due`` milliseconds, lying at ``offset``."""
        self.count += 1
        hour = due // _FAR_MS
        if hour < self._near_hour:
            self._add_near(due, offset, key_hash)
            return
        slot = self._far.get(hour)
        if slot is None:
            slot = self._far[hour] = Slot(hour * _FAR_MS)
            heapq.heappush(self._far_keys, hour)
        slot.add(due, offset, key_hash)

    def _add_near(self, due: int, offset: int, key_hash: int) -> None:
        key = due // NEAR_MS
        slot = self._near.get(key)
        if slot is None:
            slot = self._near[key] = Slot(key * NEAR_MS)
            heapq.heappush(self._near_keys, key)
        slot.add(due, offset, key_hash)

    def remove(self, due: int, offset: int) -> int | None:
        """Take a record out; the hash of its key, or None if it is not here."""
        for slot in self._slots_of(due):
            key_hash = slot.remove(due, offset)
            if key_hash is not None:
                self.count -= 1
                return key_hash
        return None

    def remove_all(self, entries: Entries) -> list[Held]:
        """Take out all of ``entries`` that are here; those that were."""
        removed: list[Held] = []
        by_hour: dict[int, list[tuple[int, int]]] = {}
        for due, offset in zip(*entries, strict=True):
            hour = due // _FAR_MS
            if hour in self._far:
                by_hour.setdefault(hour, []).append((due, offset))
            else:
                self._remove_to(removed, due, offset)
        for hour, pairs in by_hour.items():
            slot = self._far[hour]
            if len(pairs) > _FEW:
                found = slot.remove_all({slot.entry(*pair) for pair in pairs})
                self.count -= len(found)
                for pair in pairs:
                    key_hash = found.pop(slot.entry(*pair), None)
                    if key_hash is not None:
                        removed.append(Held(*pair, key_hash))
                    else:
                        self._remove_to(removed, *pair)
            else:
                for pair in pairs:
                    self._remove_to(removed, *pair)
        return removed

    def _remove_to(self, removed: list[Held], due: int, offset: int) -> None:
        key_hash = self.remove(due, offset)
        if key_hash is not None:
            removed.append(Held(due, offset, key_hash))

    def contains(self, due: int, offset: int) -> bool:
        """Whether a record is here."""
        return any(slot.find(due, offset) >= 0 for slot in self._slots_of(due))

    def _slots_of(self, due: int) -> Iterator[Slot]:
        slot = self._near.get(due // NEAR_MS)
        if slot is not None:
            yield slot
        slot = self._far.get(due // _FAR_MS)  # which may be spread in part
        if slot is not None:
            yield slot

    def advance(self, now_ms: int, most: int, ahead: int = _AHEAD) -> bool:
        """Spread at most ``most`` records that are near now; whether some are left to spread.

        Near are those of this hour and of the next ones, ``ahead`` hours in all.
        """
        near_hour = now_ms // _FAR_MS + ahead
        self._near_hour = max(self._near_hour, near_hour)
        while self._far_keys and self._far_keys[0] < self._near_hour:
            if most <= 0:
                return True
            slot = self._far[self._far_keys[0]]
            taken = slot.take_last(most)
            self.moves += 1
            most -= len(taken)
            for held in taken:
                self._add_near(*held)
            if not len(slot):
                del self._far[heapq.heappop(self._far_keys)]
        return False

    def due(self, now_ms: int, most: int) -> list[Held]:
        """The records that are due, at most ``most``, in their order; they stay in."""
        self.advance(now_ms, _ALL, ahead=1)
        found: list[Held] = []
        for key in self.near_keys(0, now_ms // NEAR_MS + 1) if most > 0 else ():
            slot = self._near[key]
            slot.sort()
            for at in range(len(slot)):
                held = slot.held(at)
                if held.due > now_ms or len(found) >= most:
                    return found
                found.append(held)
        return found

    def near_keys(self, first: int, end: int) -> Iterator[int]:
        """The small slots from ``first`` up to ``end`` that hold something, in their order.

        A slot is the due times of its records, in milliseconds, divided by ``NEAR_MS``.
        """
        self._drop_empty()
        if not self._near_keys:
            return
        key = max(first, self._near_keys[0])
        if end - key > _MANY:
            yield from sorted(
                at for at, slot in self._near.items() if first <= at < end and len(slot)
            )
            return
        while key < end:
            if key in self._near and len(self._near[key]):
                yield key
            key += 1

    def offsets_at(self, key: int) -> list[int]:
        """Where the records of a small slot lie."""
        return [entry & _OFFSET_MASK for entry in self._near[key].entries]

    def next_due(self) -> int | None:
        """When the first record is due."""
        self._drop_empty()
        candidates = []
        if self._near_keys:
            candidates.append(self._near[self._near_keys[0]].first_due())
        if self._far_keys:
            candidates.append(self._far[self._far_keys[0]].first_due())
        return min(candidates, default=None)

    def _drop_empty(self) -> None:
        _drop_empty(self._near, self._near_keys)
        _drop_empty(self._far, self._far_keys)

    def slots(self) -> list[Slot]:
        """Every slot, for whoever goes over all records bit by bit."""
        return [*self._near.values(), *self._far.values()]

    def after(self, due: int, offset: int, most: int) -> list[Held]:
        """At most ``most`` records in order, behind that one."""
        found: list[Held] = []
        for slot in sorted(self.slots(), key=_start_of):
            if len(found) >= most and slot.start > found[most - 1].due:
                break
            least = slot.entry(due, offset) if due >= slot.start else -1
            behind = [at for at, entry in enumerate(slot.entries) if entry > least]
            places = heapq.nsmallest(most, behind, key=slot.entries.__getitem__)
            found = heapq.nsmallest(most, [*found, *map(slot.held, places)])
        return found

    def with_hash(self, key_hash: int) -> list[Held]:
        """The records whose keys have this hash."""
        pattern = array("I", (key_hash,)).tobytes()
        found = []
        for slot in self.slots():
            data = slot.hashes.tobytes()
            at = data.find(pattern)
            while at >= 0:
                if at % 4 == 0:
                    found.append(slot.held(at // 4))
                at = data.find(pattern, at + 1)
        return found

    def ahead(self, bounds: Sequence[int]) -> list[int]:
        """How many are due before each of ``bounds``, ascending times in milliseconds.

        To within the length of the slots that lie across them.
        """
        counts = [0] * len(bounds)
        for slot in self.slots():
            for number, bound in enumerate(bounds):
                if slot.start < bound:
                    counts[number] += len(slot)
        return counts

    def dump(self) -> Iterable[tuple[int, bytes, bytes]]:
        """Start, entries and hashes of every slot: what :meth:`load` takes."""
        for slot in self.slots():
            if len(slot):
                yield slot.start, slot.entries.tobytes(), slot.hashes.tobytes()

    def load(self, start: int, entries: bytes, hashes: bytes) -> None:
        """Take in what a slot held. Raises ValueError when its parts do not fit."""
        if len(entries) != 2 * len(hashes) or len(entries) % 8:
            raise ValueError("a slot's entries do not fit its hashes")
        hour = start // _FAR_MS
        slot = Slot(start)
        slot.restore(entries, hashes)
        if start % _FAR_MS == 0 and hour not in self._far and hour >= self._near_hour:
            self._far[hour] = slot
            heapq.heappush(self._far_keys, hour)
            self.count += len(slot)
        else:
            for at in range(len(slot)):
                self.add(*slot.held(at))


def _drop_empty(slots: dict[int, Slot], keys: list[int]) -> None:
    """Forget the first slots, as ``keys``, a heap, has them, that hold nothing any more."""
    while keys:
        slot = slots.get(keys[0])
        if slot is not None and len(slot):
            return
        slots.pop(heapq.heappop(keys), None)


def _start_of(slot: Slot) -> int:
    return slot.start
