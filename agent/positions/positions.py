"""All positions: found by file, changed in memory, written together."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from qbus.clock import Clock

from .journal import Journal
from .position import Identity, Position

FILE_NAME = "positions.journal"
EXPIRY_MS = 3 * 86_400_000
"""The position of a file that was missing for so long is removed."""
_SMALLEST_COMPACTION = 1 << 20
_COMPACTION_FACTOR = 4


class Changes(NamedTuple):
    """Changes on their way to the journal. ``is_whole``: ``lines`` replace all that it says."""

    lines: list[bytes]
    is_whole: bool
    changed: dict[int, Position]
    moved: dict[int, Position]
    marked: set[str]


class Positions:
    """The positions in a directory. The journal has three kinds of lines:

    ``{...}``: a whole position; ``p <number> <offset> <length> <crc>``: its later offset and tail;
    ``s "<name>"``: a source that was scanned.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        """Raises OSError and :class:`~qbus.service.lock.DirectoryInUse`."""
        self._clock = clock
        self.path = directory / FILE_NAME
        self._journal = Journal(self.path)
        self._entries: dict[tuple[Identity, str], Position] = {}
        self._by_number: dict[int, Position] = {}
        self._sources: set[str] = set()
        self._changed: dict[int, Position] = {}
        self._moved: dict[int, Position] = {}
        self._marked: set[str] = set()
        self._next_number = 0
        self.is_unsynced = False
        """Whether a crash of the system may lose lines that were written."""
        self._is_suspect = False
        self._compact_at = _SMALLEST_COMPACTION
        try:
            for payload in self._journal.read():
                self._load(payload)
        except OSError:
            self._journal.close()
            raise

    def __iter__(self) -> Iterator[Position]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, identity: Identity, topic: str) -> Position | None:
        """Return the position of a file, if there is one."""
        return self._entries.get((identity, topic))

    def add(self, position: Position) -> None:
        """Add a position; the next :meth:`write` writes it."""
        position.number = self._next_number
        self._next_number += 1
        self._put(position)
        self.change(position)

    def change(self, position: Position) -> None:
        """Note that a position changed, in more than its offset."""
        self._changed[position.number] = position

    def move(self, position: Position) -> None:
        """Note that the offset and the tail of a position changed."""
        self._moved[position.number] = position

    def forget(self, position: Position) -> None:
        """Remove a position; the journal drops it at the next compaction."""
        if self._by_number.pop(position.number, None) is not None:
            del self._entries[position.identity, position.topic]
        self._changed.pop(position.number, None)
        self._moved.pop(position.number, None)

    def was_seen(self, source: str) -> bool:
        """Whether the source of that name was scanned before."""
        return source in self._sources

    def mark_seen(self, source: str) -> bool:
        """Note that the source was scanned; return whether it was not before.

        The next write writes it, with all changes.
        """
        is_new = source not in self._sources
        if is_new:
            self._sources.add(source)
            self._marked.add(source)
        return is_new

    def write(self) -> bool:
        """Write all changes; return whether there were any.

        A crash of the process then loses nothing; a crash of the system may, until
        :meth:`sync`. Raises OSError; all changes are then still to be written.
        """
        changes = self.take()
        if changes is None:
            return False
        try:
            self.store(changes)
        except BaseException:
            self.restore(changes)
            raise
        self.stored(changes)
        return True

    # The parts of a write: all but ``store`` are of the thread that changes positions.

    def take(self) -> Changes | None:
        """Take all changes, to :meth:`store` them; None: there is nothing to write.

        The next ones are taken when these are :meth:`stored`, or given to :meth:`restore`. After a
        failed :meth:`sync` they are the whole journal, even if nothing has changed since.
        """
        if not (self._changed or self._moved or self._marked or self._is_suspect):
            return None
        is_whole = self._is_suspect or self._journal.size > self._compact_at
        lines = self._whole() if is_whole else self._new_lines()
        changes = Changes(lines, is_whole, self._changed, self._moved, self._marked)
        self._changed, self._moved, self._marked = {}, {}, set()
        return changes

    def store(self, changes: Changes) -> None:
        """Bring changes to the journal, in any thread. Raises OSError: none of them are there."""
        if changes.is_whole:
            self._journal.replace(changes.lines)
        else:
            self._journal.append(changes.lines)

    def stored(self, changes: Changes) -> None:
        """Note that changes are in the journal."""
        self.is_unsynced = not changes.is_whole
        if changes.is_whole:
            self._is_suspect = False
            self._note_size()

    def restore(self, changes: Changes) -> None:
        """Note that changes are still to be written."""
        for number, position in changes.changed.items():
            if number in self._by_number:
                self._changed[number] = position
        for number, position in changes.moved.items():
            if number in self._by_number:
                self._moved[number] = position
        self._marked |= changes.marked
        self._is_suspect = self._is_suspect or changes.is_whole  # its name may not be durable

    def sync(self) -> None:
        """Return when everything written is on stable storage; blocks. Raises OSError.

        After an error the next write replaces the journal: the kernel takes pages that it could not
        write for clean, so that another sync would succeed without them.
        """
        self.is_unsynced = False
        try:
            self._journal.sync()
        except OSError:
            self.is_unsynced = self._is_suspect = True
            raise

    def compact(self) -> None:
        """Rewrite the journal without obsolete lines. Raises OSError."""
        self._journal.replace(self._whole())
        self._changed, self._moved, self._marked = {}, {}, set()
        self.is_unsynced = self._is_suspect = False
        self._note_size()

    def close(self) -> None:
        """Write, sync and close. Raises OSError."""
        try:
            self.write()
            self.sync()
        finally:
            self._journal.close()

    def _new_lines(self) -> list[bytes]:
        """Return lines that say what changed."""
        lines = [position.to_json() for position in self._changed.values()]
        lines += [
            b"p %d %d %d %d" % (position.number, position.offset, *position.tail)
            for number, position in self._moved.items()
            if number not in self._changed
        ]
        return lines + [_source_line(source) for source in sorted(self._marked)]

    def _whole(self) -> list[bytes]:
        """Return lines that say everything, without positions that expired.

        The time counts from when files were last looked for, should the clock have been set since.
        """
        positions = list(self._entries.values())
        last_seen = max((position.seen_at for position in positions), default=0)
        now = min(self._clock.time_ms(), last_seen)
        for position in positions:
            if now - position.seen_at > EXPIRY_MS:
                self.forget(position)
        lines = [position.to_json() for position in self._entries.values()]
        return lines + [_source_line(source) for source in sorted(self._sources)]

    def _note_size(self) -> None:
        self._compact_at = max(_SMALLEST_COMPACTION, _COMPACTION_FACTOR * self._journal.size)

    def _put(self, position: Position) -> None:
        old = self._entries.get((position.identity, position.topic))
        if old is not None and old is not position:
            self.forget(old)
        self._entries[position.identity, position.topic] = position
        self._by_number[position.number] = position

    def _load(self, payload: bytes) -> None:
        """Take in one line; unknown lines are ignored."""
        with suppress(KeyError, TypeError, ValueError):
            if payload.startswith(b"{"):
                position = Position.from_json(json.loads(payload))
                self._put(position)
                self._next_number = max(self._next_number, position.number + 1)
            elif payload.startswith(b"p "):
                number, offset, length, crc = map(int, payload[2:].split())
                position = self._by_number[number]
                position.offset, position.tail = offset, (length, crc)
            elif payload.startswith(b"s "):
                self._sources.add(json.loads(payload[2:]))


def _source_line(source: str) -> bytes:
    return b"s " + json.dumps(source).encode()
