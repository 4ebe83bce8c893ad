"""All positions: found by file, changed in memory, written down together."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbus.clock import Clock

from .journal import Journal
from .position import Fingerprint, Identity, Position

FILE_NAME = "positions.journal"
EXPIRY_MS = 3 * 86_400_000
"""A file that was not there for so long is forgotten."""
_SMALLEST_COMPACTION = 1 << 20
_COMPACTION_FACTOR = 4


class Positions:
    """The positions in a directory. Lines of the journal are of three kinds:

    ``{...}`` a position with all there is to it; ``p <number> <offset> <length> <crc>`` how far one
    has come since, with its tail; ``s "<name>"`` a source that was looked at once.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        """Raises OSError and :class:`~qbus.service.lock.DirectoryInUse`."""
        self._clock = clock
        self._journal = Journal(directory / FILE_NAME)
        self._entries: dict[tuple[Identity, str], Position] = {}
        self._by_number: dict[int, Position] = {}
        self._sources: set[str] = set()
        self._changed: dict[int, Position] = {}
        self._moved: dict[int, Position] = {}
        self._next_number = 0
        self.is_unsynced = False
        """Whether something was written since the last :meth:`sync`."""
        self._compact_at = _SMALLEST_COMPACTION
        for payload in self._journal.read():
            self._take(payload)

    def __iter__(self) -> Iterator[Position]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, identity: Identity, topic: str) -> Position | None:
        """What is known of a file, if anything is."""
        return self._entries.get((identity, topic))

    def add(self, position: Position) -> None:
        """Remember one more file, from the next :meth:`write` on."""
        position.number = self._next_number
        self._next_number += 1
        self._put(position)
        self.change(position)

    def change(self, position: Position) -> None:
        """More than the offset of a position is another."""
        self._changed[position.number] = position

    def move(self, position: Position) -> None:
        """The offset of a position, and its tail, are others."""
        self._moved[position.number] = position

    def forget(self, position: Position) -> None:
        """A file is gone for good; the journal loses it when it is written anew."""
        if self._by_number.pop(position.number, None) is not None:
            del self._entries[position.identity, position.topic]
        self._changed.pop(position.number, None)
        self._moved.pop(position.number, None)

    def was_looked_at(self, source: str) -> bool:
        """Whether the source of that name is no new one."""
        return source in self._sources

    def look_at(self, source: str) -> None:
        """Write down at once, with all else, that the source was looked at. Raises OSError."""
        if source not in self._sources:
            self._sources.add(source)
            try:
                self.write(b"s " + json.dumps(source).encode())
            except OSError:
                self._sources.discard(source)
                raise

    def write(self, *payloads: bytes) -> bool:
        """Write down what changed; whether that was anything.

        A crash of the process loses nothing then, one of the system only after :meth:`sync`.
        Raises OSError: then it is all still to be written.
        """
        lines = [position.to_json() for position in self._changed.values()]
        lines += [
            b"p %d %d %d %d" % (position.number, position.offset, *position.tail)
            for number, position in self._moved.items()
            if number not in self._changed
        ]
        lines += payloads
        if not lines:
            return False
        self._journal.append(lines)
        self.is_unsynced = True
        self._changed.clear()
        self._moved.clear()
        if self._journal.size > self._compact_at:
            self.compact()
        return True

    def sync(self) -> None:
        """Return when all that was written is on stable storage. For a thread. Raises OSError."""
        self.is_unsynced = False
        self._journal.sync()

    def compact(self) -> None:
        """Write the journal anew, without what is obsolete. Raises OSError."""
        now = self._clock.time_ms()
        for position in list(self._entries.values()):
            if now - position.seen_at > EXPIRY_MS:
                self.forget(position)
        lines = [position.to_json() for position in self._entries.values()]
        lines += [b"s " + json.dumps(source).encode() for source in sorted(self._sources)]
        self._journal.replace(lines)
        self._changed.clear()
        self._moved.clear()
        self._compact_at = max(_SMALLEST_COMPACTION, _COMPACTION_FACTOR * self._journal.size)

    def close(self) -> None:
        """Write, sync and let go. Raises OSError."""
        try:
            self.write()
            self.sync()
        finally:
            self._journal.close()

    def by_fingerprint(self, fingerprint: Fingerprint, topic: str) -> list[Position]:
        """Files whose head is the same."""
        every = self._entries.values()
        return [one for one in every if one.fingerprint == fingerprint and one.topic == topic]

    def _put(self, position: Position) -> None:
        old = self._entries.get((position.identity, position.topic))
        if old is not None and old is not position:
            self.forget(old)
        self._entries[position.identity, position.topic] = position
        self._by_number[position.number] = position

    def _take(self, payload: bytes) -> None:
        """Read one line; what is none of ours is passed over."""
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
