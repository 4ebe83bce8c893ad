"""When the delayed records of a partition are due: a timing wheel of twelve bytes for each.

What is due within two minutes lies in slots of a tenth of a second, what is due within two hours in
slots of a minute, the rest in slots of an hour. A slot is spread over those of the next smaller
kind as its time comes near. So what is far costs nothing but its place, and what is near is sorted
in small pieces.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from qbus.records.control import Entries

NEAR_MS: Final = 100
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_AHEAD: Final = 2  # slots that are spread before they begin

_OFFSET_BITS: Final = 42
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_HIGHEST: Final = (1 << 64) - 1
MAX_OFFSET: Final = _OFFSET_MASK
"""The largest offset at which a delayed record may lie."""

_ALL: Final = 1 << 62
_MANY: Final = 1_000  # slots that are not tried one by one
_FEW: Final = 8  # entries that are looked for one by one
_CHUNK: Final = 1024  # entries of a chunk: blocks of a few sizes do not leave holes in memory


class Held(NamedTuple):
    """A delayed record: its due time in milliseconds, where it lies, and the hash of its key."""

    due: int
    offset: int
    key_hash: int


class _Chunk:
    """Up to ``_CHUNK`` entries of a slot, and the hash of the key of each.

    Its entries are between ``bottom`` and ``top``, their offsets between ``low`` and ``high``: what
    is elsewhere is not looked for among them.
    """

    __slots__ = ("bottom", "entries", "hashes", "high", "least", "low", "top")

    def __init__(self) -> None:
        self.entries: array[int] = array("Q")
        self.hashes: array[int] = array("I")
        self.bottom = _HIGHEST
        self.top = 0
        self.low = _OFFSET_MASK
        self.high = 0
        self.least = -1  # the first entry in order, if it is known

    def append(self, entry: int, key_hash: int) -> None:
        """Put an entry in."""
        entries = self.entries
        if not len(entries) or entry < self.least:
            self.least = entry
        entries.append(entry)
        self.hashes.append(key_hash)
        self.bottom = min(self.bottom, entry)
        self.top = max(self.top, entry)
        offset = entry & _OFFSET_MASK
        self.low = min(self.low, offset)
        self.high = max(self.high, offset)

    def first(self) -> int:
        """The first entry in order."""
        if self.least < 0:
            self.least = min(self.entries)
        return self.least

    def find(self, entry: int) -> int:
        """The place of an entry, or -1."""
        if not self.bottom <= entry <= self.top:
            return -1
        if not self.low <= entry & _OFFSET_MASK <= self.high:
            return -1
        entries = self.entries
        if entries[0] == entry:
            return 0
        pattern, data = array("Q", (entry,)).tobytes(), entries.tobytes()
        at = data.find(pattern)
        while at >= 0 and at % 8:
            at = data.find(pattern, at + 1)
        return at // 8 if at >= 0 else -1

    def remove_at(self, at: int) -> int:
        """Take out the entry at a place; the hash of its key."""
        key_hash = self.hashes[at]
        if self.entries[at] == self.least:
            self.least = -1
        del self.entries[at], self.hashes[at]
        return key_hash

    def without(self, wanted: set[int], removed: dict[int, int]) -> "_Chunk":
        """What is left when the entries ``wanted`` go to ``removed``, with their hashes."""
        self._take_first(wanted, removed)
        if len(removed) == len(wanted) or wanted.isdisjoint(self.entries):
            return self
        left = _Chunk()
        for entry, key_hash in zip(self.entries, self.hashes, strict=True):
            if entry in wanted:
                removed[entry] = key_hash
            else:
                left.append(entry, key_hash)
        return left

    def _take_first(self, wanted: set[int], removed: dict[int, int]) -> None:
        """Take out the first entries as long as they are ``wanted``: what is delivered, mostly."""
        entries, hashes = self.entries, self.hashes
        count = 0
        for entry in entries:
            if entry not in wanted:
                break
            removed[entry] = hashes[count]
            count += 1
        if count:
            del entries[:count], hashes[:count]
            self.least = -1

    def with_hashes(self, wanted: set[int], patterns: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """The entries whose keys have one of these hashes, and the hash of each.

        ``patterns``: the bytes of each hash, if they are few: to look for them is quicker then.
        """
        if patterns:
            data = self.hashes.tobytes()
            if not any(pattern in data for pattern in patterns):
                return
        elif wanted.isdisjoint(self.hashes):
            return
        for entry, key_hash in zip(self.entries, self.hashes, strict=True):
            if key_hash in wanted:
                yield entry, key_hash


class Slot:
    """The records that are due within one stretch of time, in chunks, of which none is empty.

    An entry is the due time, in milliseconds from ``start``, before the offset in 42 bits: so
    ascending entries are in the order in which they are due, and in the log's where that is one.
    What was restored is cut into chunks when they are needed: a start does not wait for that.
    """

    __slots__ = ("_chunks", "_count", "_is_sorted", "_least", "_restored", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self._chunks: list[_Chunk] = []
        self._count = 0
        self._is_sorted = True
        self._least = -1  # the first entry in order, if it is known
        # Entries and hashes that are in no chunk yet
        self._restored: tuple[array[int], array[int]] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        for chunk in self._whole():
            yield from self._held(chunk)

    def _whole(self) -> list[_Chunk]:
        """The chunks, with all that was restored in them."""
        while self._restored is not None:
            self._cut_chunk()
        return self._chunks

    def _cut_chunk(self) -> None:
        """Put the last of what was restored in a chunk."""
        assert self._restored is not None
        entries, hashes = self._restored
        chunk = _Chunk()
        for entry, key_hash in zip(entries[-_CHUNK:], hashes[-_CHUNK:], strict=True):
            chunk.append(entry, key_hash)
        del entries[-_CHUNK:], hashes[-_CHUNK:]
        self._chunks.append(chunk)
        if not len(entries):
            self._restored = None

    def pieces(self) -> Iterator[list[Held]]:
        """The records, some at a time, the last ones first.

        The slot may change between two pieces: what is taken out is missing then, and what is put
        in is, too.
        """
        for chunk in reversed(list(self._whole())):
            yield list(self._held(chunk))

    def _held(self, chunk: _Chunk) -> Iterator[Held]:
        for entry, key_hash in zip(chunk.entries, chunk.hashes, strict=True):
            yield self._record(entry, key_hash)

    def _record(self, entry: int, key_hash: int) -> Held:
        return Held(self.start + (entry >> _OFFSET_BITS), entry & _OFFSET_MASK, key_hash)

    def entry(self, due: int, offset: int) -> int:
        """A record in the form in which the slot holds it."""
        return (due - self.start) << _OFFSET_BITS | offset

    def offsets(self) -> list[int]:
        """Where the records lie."""
        return [entry & _OFFSET_MASK for chunk in self._whole() for entry in chunk.entries]

    def add(self, due: int, offset: int, key_hash: int) -> None:
        """Put a record in."""
        entry = (due - self.start) << _OFFSET_BITS | offset
        chunks = self._chunks
        if not self._count or entry < self._least:
            self._least = entry
        if not chunks:
            chunks.append(_Chunk())
        chunk = chunks[-1]
        if self._is_sorted and len(chunk.entries) and entry < chunk.entries[-1]:
            self._is_sorted = False
        if len(chunk.entries) >= _CHUNK:
            chunk = _Chunk()
            chunks.append(chunk)
        chunk.append(entry, key_hash)
        self._count += 1

    def contains(self, entry: int) -> bool:
        """Whether an entry is here."""
        return any(chunk.find(entry) >= 0 for chunk in self._whole())

    def remove(self, entry: int) -> int | None:
        """Take an entry out; the hash of its key, or None if it is not here."""
        for number, chunk in enumerate(self._whole()):
            at = chunk.find(entry)
            if at >= 0:
                key_hash = chunk.remove_at(at)
                self._count -= 1
                if entry == self._least:
                    self._least = -1
                if not chunk.entries:
                    del self._chunks[number]
                return key_hash
        return None

    def remove_all(self, wanted: set[int]) -> dict[int, int]:
        """Take the entries ``wanted`` out; those that were here, with the hashes of their keys."""
        found: dict[int, int] = {}
        first, last = min(wanted), max(wanted)
        for number, chunk in enumerate(self._whole()):
            if len(found) == len(wanted):
                break
            if first <= chunk.top and last >= chunk.bottom:
                self._chunks[number] = chunk.without(wanted, found)
        if found:
            if self._least in found:
                self._least = -1
            self._chunks = [chunk for chunk in self._chunks if chunk.entries]
            self._count -= len(found)
        return found

    def take_first(self) -> list[Held]:
        """Take out a chunk."""
        if not self._chunks:
            self._cut_chunk()
        chunk = self._chunks.pop(0)
        self._count -= len(chunk.entries)
        if chunk.bottom <= self._least:
            self._least = -1
        return list(self._held(chunk))

    def due_at(self, offset: int) -> int | None:
        """When the record is due that lies at ``offset``, if it is here."""
        for chunk in self._whole():
            if chunk.low <= offset <= chunk.high:
                for entry in chunk.entries:
                    if entry & _OFFSET_MASK == offset:
                        return self.start + (entry >> _OFFSET_BITS)
        return None

    def sort(self) -> None:
        """Bring the entries into the order in which they are due."""
        if not self._is_sorted:
            pairs: list[tuple[int, int]] = []
            for chunk in self._whole():
                pairs += zip(chunk.entries, chunk.hashes, strict=True)
            pairs.sort()
            self._fill(pairs)
            self._is_sorted = True

    def _fill(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._chunks, self._count = [], 0
        chunk: _Chunk | None = None
        for entry, key_hash in pairs:
            if chunk is None or len(chunk.entries) >= _CHUNK:
                chunk = _Chunk()
                self._chunks.append(chunk)
            chunk.append(entry, key_hash)
            self._count += 1

    def first_due(self) -> int:
        """When the first of its records is due; there is at least one."""
        if self._least < 0:
            firsts = [chunk.first() for chunk in self._chunks]
            if self._restored is not None:
                firsts.append(min(self._restored[0]))
            self._least = min(firsts)
        return self.start + (self._least >> _OFFSET_BITS)

    def with_hashes(self, wanted: set[int], patterns: Sequence[bytes]) -> Iterator[Held]:
        """The records whose keys have one of these hashes; see :meth:`_Chunk.with_hashes`."""
        for chunk in self._whole():
            for entry, key_hash in chunk.with_hashes(wanted, patterns):
                yield self._record(entry, key_hash)

    def dump(self) -> tuple[int, bytes, bytes]:
        """Start, entries and hashes: what :meth:`load` takes."""
        entries = [chunk.entries.tobytes() for chunk in self._chunks]
        hashes = [chunk.hashes.tobytes() for chunk in self._chunks]
        if self._restored is not None:
            entries.append(self._restored[0].tobytes())
            hashes.append(self._restored[1].tobytes())
        return self.start, b"".join(entries), b"".join(hashes)

    def restore(self, entries: bytes, hashes: bytes) -> None:
        """Hold what :meth:`dump` gave. Raises ValueError when the parts do not fit each other."""
        if len(entries) != 2 * len(hashes) or len(entries) % 8:
            raise ValueError("a slot's entries do not fit its hashes")
        self._chunks, self._count, self._least = [], len(hashes) // 4, -1
        self._restored = (array("Q", entries), array("I", hashes)) if self._count else None
        self._is_sorted = False

    def last_due(self) -> int:
        """When the last of its records is due; there is at least one."""
        lasts = [max(chunk.entries) for chunk in self._chunks]
        if self._restored is not None:
            lasts.append(max(self._restored[0]))
        return self.start + (max(lasts) >> _OFFSET_BITS)

    def after(self, due: int, offset: int, most: int) -> list[Held]:
        """At most ``most`` records in order, behind that one."""
        least = self.entry(due, offset) if due >= self.start else -1
        behind = (
            pair
            for chunk in self._whole()
            for pair in zip(chunk.entries, chunk.hashes, strict=True)
            if pair[0] > least
        )
        return [self._record(*pair) for pair in heapq.nsmallest(most, behind)]


class _Level:
    """The slots of one kind: each covers ``width_ms``, and has the number of that stretch."""

    __slots__ = ("begin", "keys", "slots", "width_ms")

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.slots: dict[int, Slot] = {}
        self.keys: list[int] = []  # a heap, with keys of slots that are empty or gone in it
        self.begin = 0  # slots before it are spread over those of the next level

    def slot(self, key: int) -> Slot:
        """The slot for a stretch of time; a new one, if there is none."""
        slot = self.slots.get(key)
        if slot is None:
            slot = Slot(key * self.width_ms)
            self.put(key, slot)
        return slot

    def put(self, key: int, slot: Slot) -> None:
        """Put a slot in where there is none."""
        self.slots[key] = slot
        heapq.heappush(self.keys, key)

    def drop_empty(self) -> None:
        """Forget the first slots, as long as they hold nothing."""
        while self.keys:
            slot = self.slots.get(self.keys[0])
            if slot is not None and len(slot):
                return
            self.slots.pop(heapq.heappop(self.keys), None)


class Schedule:
    """All delayed records of a partition by the time at which they are due."""

    __slots__ = ("_levels", "_near", "count", "moves")

    def __init__(self) -> None:
        self.count = 0
        self.moves = 0  # how often records went from one slot to another
        self._near = _Level(NEAR_MS)
        self._levels = (_Level(_HOUR_MS), _Level(_MINUTE_MS), self._near)

    def add(self, due: int, offset: int, key_hash: int) -> None:
        """Put a record in: due at ``due`` milliseconds, lying at ``offset``."""
        self.count += 1
        self._put(due, offset, key_hash)

    def _put(self, due: int, offset: int, key_hash: int) -> None:
        for level in self._levels:
            key = due // level.width_ms
            if key >= level.begin:
                level.slot(key).add(due, offset, key_hash)
                return

    def remove(self, due: int, offset: int) -> int | None:
        """Take a record out; the hash of its key, or None if it is not here."""
        for slot in self._slots_of(due):
            key_hash = slot.remove(slot.entry(due, offset))
            if key_hash is not None:
                self.count -= 1
                return key_hash
        return None

    def remove_all(self, entries: Entries) -> list[Held]:
        """Take out all of ``entries`` that are here; those that were."""
        removed: list[Held] = []
        left: list[tuple[int, int]] = list(zip(*entries, strict=True))
        for level in reversed(self._levels):
            by_slot: dict[int, list[tuple[int, int]]] = {}
            others: list[tuple[int, int]] = []
            for pair in left:
                key = pair[0] // level.width_ms
                if key in level.slots:
                    by_slot.setdefault(key, []).append(pair)
                else:
                    others.append(pair)
            left = others
            for key, pairs in by_slot.items():
                left += _remove_from(level.slots[key], pairs, removed)
            if not left:
                break
        self.count -= len(removed)
        return removed

    def contains(self, due: int, offset: int) -> bool:
        """Whether a record is here."""
        return any(slot.contains(slot.entry(due, offset)) for slot in self._slots_of(due))

    def _slots_of(self, due: int) -> Iterator[Slot]:
        for level in reversed(self._levels):
            slot = level.slots.get(due // level.width_ms)
            if slot is not None:
                yield slot

    def advance(self, now_ms: int, most: int, ahead: int = _AHEAD) -> bool:
        """Spread about ``most`` records that are near now; whether some are left to spread.

        Near are those of this hour and minute, and of the next ones, ``ahead`` of each in all.
        """
        for level in self._levels[:-1]:
            level.begin = max(level.begin, now_ms // level.width_ms + ahead)
            level.drop_empty()
            while level.keys and level.keys[0] < level.begin:
                if most <= 0:
                    return True
                taken = level.slots[level.keys[0]].take_first()
                self.moves += 1
                most -= len(taken)
                for due, offset, key_hash in taken:
                    self._put(due, offset, key_hash)
                level.drop_empty()
        return False

    def due(self, now_ms: int, most: int) -> list[Held]:
        """The records that are due, at most ``most``, in their order; they stay in."""
        self.advance(now_ms, _ALL, ahead=1)
        found: list[Held] = []
        for key in self.near_keys(0, now_ms // NEAR_MS + 1) if most > 0 else ():
            slot = self._near.slots[key]
            slot.sort()
            for held in slot:
                if held.due > now_ms or len(found) >= most:
                    return found
                found.append(held)
        return found

    def near_keys(self, first: int, end: int) -> Iterator[int]:
        """The small slots from ``first`` up to ``end`` that hold something, in their order.

        A slot is the due times of its records, in milliseconds, divided by ``NEAR_MS``.
        """
        near = self._near
        near.drop_empty()
        if not near.keys:
            return
        key = max(first, near.keys[0])
        if end - key > _MANY:
            yield from sorted(
                at for at, slot in near.slots.items() if first <= at < end and len(slot)
            )
            return
        while key < end:
            if key in near.slots and len(near.slots[key]):
                yield key
            key += 1

    def offsets_at(self, key: int) -> list[int]:
        """Where the records of a small slot lie."""
        return self._near.slots[key].offsets()

    def next_due(self) -> int | None:
        """When the first record is due."""
        first: int | None = None
        for level in self._levels:
            level.drop_empty()
            if level.keys:
                due = level.slots[level.keys[0]].first_due()
                first = due if first is None else min(first, due)
        return first

    def slots(self) -> list[Slot]:
        """Every slot, for whoever goes over all records bit by bit."""
        return [slot for level in self._levels for slot in level.slots.values()]

    def after(self, due: int, offset: int, most: int) -> list[Held]:
        """At most ``most`` records in order, behind that one."""
        found: list[Held] = []
        for slot in sorted(self.slots(), key=_start_of):
            if len(found) >= most and slot.start > found[most - 1].due:
                break
            found = heapq.nsmallest(most, [*found, *slot.after(due, offset, most)])
        return found

    def with_hashes(self, wanted: set[int]) -> list[Held]:
        """The records whose keys have one of these hashes."""
        few = sorted(wanted) if len(wanted) <= _FEW else []
        patterns = [array("I", (key_hash,)).tobytes() for key_hash in few]
        return [held for slot in self.slots() for held in slot.with_hashes(wanted, patterns)]

    def due_at(self, offset: int) -> int | None:
        """When the record is due that lies at ``offset``, if it is here: looks through all."""
        for slot in self.slots():
            due = slot.due_at(offset)
            if due is not None:
                return due
        return None

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
                yield slot.dump()

    def load(self, start: int, entries: bytes, hashes: bytes) -> None:
        """Take in what a slot held. Raises ValueError when its parts do not fit."""
        slot = Slot(start)
        slot.restore(entries, hashes)
        length_ms = slot.last_due() - start if len(slot) else 0
        for level in reversed(self._levels):
            key = start // level.width_ms
            if start % level.width_ms == 0 and length_ms < level.width_ms:
                if key not in level.slots and key >= level.begin:
                    level.put(key, slot)
                    self.count += len(slot)
                    return
                break
        for due, offset, key_hash in slot:
            self.add(due, offset, key_hash)


def _remove_from(
    slot: Slot, pairs: list[tuple[int, int]], removed: list[Held]
) -> list[tuple[int, int]]:
    """Move those of ``pairs`` that a slot holds to ``removed``; the others."""
    others: list[tuple[int, int]] = []
    found: dict[int, int] | None = None
    if len(pairs) > _FEW:  # one by one, each would move those behind it
        found = slot.remove_all({slot.entry(due, offset) for due, offset in pairs})
    for due, offset in pairs:
        entry = slot.entry(due, offset)
        key_hash = slot.remove(entry) if found is None else found.pop(entry, None)
        if key_hash is None:
            others.append((due, offset))
        else:
            removed.append(Held(due, offset, key_hash))
    return others


def _start_of(slot: Slot) -> int:
    return slot.start
