"""A tailed file: its state, and its reads.

Nothing here blocks for long: reads are of regular files and bounded in size.
"""

import logging
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from ..positions.position import Fingerprint, Former, Identity, Position
from .ack_tracker import AckTracker
from .content import GzipContent, PlainContent, open_regular
from .framing import Flush, Frame, Framer
from .source import Labels, SourceReader
from .text import MARK_BYTES

log = logging.getLogger(__name__)

_TAIL_BYTES = 256
_NEWLINE = 10
_PAGE_BYTES = 4096
_MORE_BYTES = 4096
"""How much is read beyond a file's known size. A buffer of more is costly for a few lines."""
_NO_FORMERS: dict[int, tuple[Former, AckTracker]] = {}


class Change(Enum):
    """What happened to a file since it was last read."""

    NONE = auto()
    GROWN = auto()
    RESTARTED = auto()
    """It was truncated, or its inode belongs to another file now: read it from the start."""


def compare(read: int, size: int, *, begins_alike: bool) -> Change:
    """Return what happened to a file that was read up to ``read``.

    size: its bytes now. begins_alike: its first bytes are those that its fingerprint is of, and
    where it was just opened, those before its position are those that were shipped.
    """
    if size < read or not begins_alike:
        return Change.RESTARTED
    return Change.GROWN if size > read else Change.NONE


class Chunk:
    """Consecutive records of one file, made of its bytes from ``start`` to ``end``.

    incarnation: the file's at that time. tail: length and CRC-32 of the last bytes before ``end``.
    offsets: where each record begins, from ``start`` on; None if nobody needs that.
    is_last: nothing came after them in the file when they were read.
    """

    __slots__ = ("end", "file", "incarnation", "is_last", "offsets", "start", "tail", "values")

    def __init__(
        self,
        file: "TailedFile",
        incarnation: int,
        start: int,
        end: int,
        tail: tuple[int, int],
        values: Sequence[bytes],
        offsets: Sequence[int] | None,
        is_last: bool = False,
    ) -> None:
        self.file = file
        self.incarnation = incarnation
        self.start = start
        self.end = end
        self.tail = tail
        self.values = values
        self.offsets = offsets
        self.is_last = is_last

    def forget_records(self) -> None:
        """Release the records: somebody else has them."""
        self.values = ()
        self.offsets = None


class TailedFile:
    """One file of one source. Times are in seconds of the monotonic clock.

    read: the offset up to which records were made. size: its end at the last refresh (of a gzip
    file: the packed size). rest: bytes after the last record that are no record yet.
    ctime: when its permissions or its content changed, as of the last scan.
    flush: which unfinished data the next read completes. retry_at: when a failed file is read
    again. behind_since: when the oldest byte was noticed that is to be read; None: there is none.
    incarnation: how often it was restarted. is_rotated: it was renamed or deleted. is_gone:
    it has no known name. is_left: it is tailed no more. is_matched: a configured path leads to it.
    has_begun: it does not wait for older generations of its log (any more). is_new: it may be a
    copy, of ``original`` or another file. is_ready: it waits to be read, or is being read.
    is_written: it was said to be written to, and that was not seen yet. refused: how many of its
    records were set aside, as too large for the topic; refusal: where the last one is, and why.
    truncations: how often it was truncated or written over, as far as that was noticed.
    """

    __slots__ = (
        "_framer",
        "_has_noted_change",
        "_head",
        "_head_of",
        "_usual",
        "acknowledged_rate",
        "acks",
        "behind_since",
        "changed_at",
        "content",
        "ctime",
        "descriptor",
        "error",
        "flush",
        "former_acks",
        "has_begun",
        "has_lines",
        "incarnation",
        "is_gone",
        "is_left",
        "is_matched",
        "is_new",
        "is_ready",
        "is_rotated",
        "is_written",
        "labels",
        "mtime",
        "original",
        "path",
        "position",
        "read",
        "refusal",
        "refused",
        "rest",
        "retries",
        "retry_at",
        "scanned",
        "size",
        "source",
        "truncations",
    )

    def __init__(self, path: str, position: Position, source: SourceReader) -> None:
        self.path = path
        self.position = position
        self.source = source
        self.read = position.offset
        self.size = position.offset
        self.mtime = -1
        self.ctime = 0
        self.rest = 0
        self.has_lines = False
        self.scanned = 0
        self.incarnation = 0
        self.descriptor: int | None = None
        self.content: PlainContent | GzipContent | None = None
        self.is_rotated = False
        self.is_matched = True
        self.is_gone = False
        self.is_left = False
        self.is_ready = False
        self.is_written = False
        self.has_begun = False
        self.changed_at = 0.0
        self.behind_since: float | None = None
        self.acknowledged_rate = 0.0
        self.error: str | None = None
        self.refused = 0
        self.truncations = 0
        self.refusal: str | None = None
        self.retries = 0
        self.retry_at = 0.0
        self.flush = Flush.NOTHING
        self.acks = AckTracker()
        self.former_acks: dict[int, tuple[Former, AckTracker]] = _NO_FORMERS
        self.is_new = False
        self.original: Position | None = None
        self.labels: Labels | None = None
        self._framer: Framer | None = None
        self._usual = 0  # so many bytes were added before the last read
        self._has_noted_change = False  # changed_at is of a change that mtime does not know of
        self._head = b""  # those bytes that _head_of is the fingerprint of
        self._head_of: Fingerprint | None = None

    @property
    def identity(self) -> Identity:
        """The identity of the file."""
        return self.position.identity

    @property
    def is_gzip(self) -> bool:
        """Whether its unpacked content is shipped."""
        return self.source.reads_gzip and self.path.endswith(".gz")

    @property
    def is_read(self) -> bool:
        """Whether everything in it was read, as far as that is known."""
        if self.is_gzip:
            end = None if self.content is None else self.content.end
            return self.position.is_done or (end is not None and self.read >= end)
        return not self.is_written and self.read + self.rest >= self.size

    def open(self) -> None:
        """Open the file; raises OSError, also if the path leads to another file now."""
        if self.descriptor is not None:
            return
        descriptor = open_regular(self.path)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or Identity.of(found) != self.identity:
                raise FileNotFoundError(f"{self.path} is another file now")
        except OSError:
            os.close(descriptor)
            raise
        self.descriptor = descriptor
        self.content = GzipContent(descriptor) if self.is_gzip else PlainContent(descriptor)

    def move(self, path: str) -> None:
        """Set another path; the suffix decides whether the content is packed."""
        was_gzip = self.is_gzip
        self.path = path
        if self.is_gzip != was_gzip:
            self.close()

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
            self.content = None

    def note_write(self, now: float) -> bool:
        """Take in that it was written to; whether it can be read on without a :meth:`refresh`.

        The read itself then shows its size. What was truncated shows by its first bytes, which each
        read compares, or by having nothing to read: then it is still to be refreshed.
        """
        if (
            self.descriptor is None
            or self.scanned
            or self.is_new
            or self.is_rotated
            or not self.has_begun
            or not self._head_is_whole
            or self.is_gzip
        ):
            return False
        self.is_written = True
        self.changed_at = now
        self._has_noted_change = True
        if self.behind_since is None:
            self.behind_since = now
        return True

    def refresh(self, now: float) -> Change:
        """Update size and time, and return what happened to the file. Raises OSError."""
        self.is_written = False
        is_fresh, is_first, before = self.descriptor is None, self.mtime < 0, self.size
        self.open()
        assert self.descriptor is not None
        assert self.content is not None
        found = os.fstat(self.descriptor)
        has_more = not is_fresh and found.st_size > max(self.size, self.read)
        is_later = found.st_mtime_ns != self.mtime and not self._has_noted_change
        if is_later or found.st_size != self.size:
            self.changed_at = now
        self._has_noted_change = False
        self.is_gone = self.is_gone or not found.st_nlink
        self.mtime = found.st_mtime_ns
        self.size = found.st_size
        if self.is_gzip and not is_fresh:  # unpacked content is only read forward
            return Change.NONE if self.is_read else Change.GROWN
        if has_more and self._head_is_whole and not self.scanned:
            self.behind_since = self.behind_since or now
            return Change.GROWN  # whoever reads on compares the first bytes, after reading
        head = self.content.read(0, self.source.fingerprint_bytes)
        size = self.read + 1 if self.is_gzip else self.size
        is_alike = self._begins_alike(head) and not (is_fresh and self.has_other_tail())
        change = compare(self.read, size, begins_alike=is_alike)
        if change is Change.RESTARTED:
            self._restart(Fingerprint.of(head), before, is_first=is_first)
            self.is_new = is_first  # the inode is reused: the file may be a copy
        elif len(head) > self.position.fingerprint.length:
            self.position.fingerprint = Fingerprint.of(head)
            self.source.positions.change(self.position)
        if self.size > self.read:
            self.behind_since = self.behind_since or now
        return change

    def _restart(self, fingerprint: Fingerprint, before: int, *, is_first: bool = False) -> None:
        """Read from the start, and say so: it is another file, or was truncated.

        before: its last known size. is_first: it changed while no agent ran.
        """
        if is_first:
            log.info(
                "%s is another file than before, or was truncated while no agent ran: it is read"
                " from its start, not from byte %d",
                self.path,
                self.read,
            )
        else:
            self.truncations += 1
            self.source.truncations += 1
            unread = max(0, before - self.read)
            log.log(
                logging.WARNING if unread else logging.INFO,
                "%s was truncated or written over: it is read from its start; %d bytes were read"
                " before%s",
                self.path,
                self.read,
                f", {unread} bytes were not: they are in a copy of it, or lost" if unread else "",
            )
        self.read = self.rest = self.scanned = 0
        self.has_lines = self.has_begun = False
        self._framer = None
        self.position.restart(fingerprint)
        if self.acks:
            self.former_acks = dict(self.former_acks)
            self.former_acks[self.incarnation] = (self.position.formers[-1], self.acks)
            self.acks = AckTracker()
        self.incarnation += 1
        self.source.positions.change(self.position)

    def read_chunk(self, most: int) -> Chunk | None:
        """Return the next records, from about ``most`` bytes; None: there are none now.

        Raises OSError.
        """
        self.open()
        assert self.content is not None
        framer, flush = self._framing(), self.flush
        if not self.read and framer.encoding.mark:
            self.read = framer.encoding.mark
        if self.scanned:
            return self._read_too_long(most)
        size = max(min(most, self._known(most)), min(self.rest, framer.most) + 1)
        while True:
            data = self.content.read(self.read, size)
            frame = framer.frame(data, flush)
            if frame.consumed or frame.is_too_long or len(data) < size or size >= framer.most:
                break
            size = min(2 * size, framer.most)
        self._note_size(self.read + len(data), is_end=len(data) < size)
        if data and self._was_emptied():
            return self._nothing()
        if data and not data.strip(b"\0") and self._skip_hole():
            if self.rest:
                return None
            return self._nothing()
        if frame.is_too_long:
            self.scanned = framer.encoding.whole(len(data))
            return self._read_too_long(most)
        if len(data) < size and self.content.end is not None and flush is not Flush.ALL:
            frame = framer.frame(data, Flush.ALL)
        self.rest = len(data) - frame.consumed if len(data) < size else 0
        self.has_lines = framer.grouping is not None and (
            _NEWLINE in memoryview(data)[frame.consumed :][: framer.limit]
        )
        is_last = frame.consumed == len(data) < size
        tail = data[max(0, frame.consumed - _TAIL_BYTES) : frame.consumed]
        chunk = self._chunk(frame, tail, is_last=is_last) if frame.consumed else None
        self.behind_since = None if len(data) < size else self.behind_since
        return chunk

    def _framing(self) -> Framer:
        """Return the framer of its content; the bytes of a byte order mark are read once."""
        framer = self._framer
        if framer is None:
            assert self.content is not None
            head = self.content.read(0, MARK_BYTES) if self.source.may_have_mark else b""
            framer = self.source.framer(head)
            if len(head) == MARK_BYTES or not self.source.may_have_mark:
                self._framer = framer
        return framer

    def _known(self, most: int) -> int:
        """How many bytes there are to be read, as far as that is known, and some more."""
        if self.is_gzip:
            return most
        return max(0, self.size - self.read, self._usual) + _MORE_BYTES

    def _note_size(self, seen: int, *, is_end: bool) -> None:
        """Take in what a read has shown of a file that was written to: ``seen`` is how far it came.

        Where that is no further than was known, the file is still to be refreshed.
        """
        if self.is_written and (seen > self.size or not is_end):
            assert self.descriptor is not None
            self.is_written = False
            self.size = seen if is_end else os.fstat(self.descriptor).st_size
            self._usual = self.size - self.read

    def acknowledge(self, chunk: Chunk) -> None:
        """Take in delivered records; the position advances once all before them are delivered."""
        position = self.position
        if chunk.incarnation == self.incarnation:
            reached = self.acks.acknowledge(chunk.end)
            if reached is not None:
                position.offset, position.tail = reached
                self.source.positions.move(position)
            self.note_if_done()
        elif chunk.incarnation in self.former_acks:
            former, acks = self.former_acks[chunk.incarnation]
            reached = acks.acknowledge(chunk.end)
            if reached is not None:
                former.offset, former.tail = reached
                self.source.positions.change(position)
            if not acks:
                del self.former_acks[chunk.incarnation]

    def offset_of(self, chunk: Chunk, number: int, value: bytes) -> int:
        """Return where the record ``number`` of a chunk begins; -1: its bytes are not there now."""
        content = self.content
        if content is None or self.is_gzip or chunk.incarnation != self.incarnation:
            return -1
        framer = replace(self._framing(), wants_offsets=True)
        try:
            data = content.read(chunk.start, chunk.end - chunk.start)
        except OSError:
            return -1
        frame = framer.frame(data, Flush.ALL)
        if number >= len(frame.values) or frame.values[number] != value:
            return -1
        assert frame.offsets is not None
        return chunk.start + frame.offsets[number]

    def note_if_done(self) -> None:
        """Note in the position of a gzip file that all of it is delivered, if so."""
        if self.is_gzip and self.is_read and not self.acks and not self.position.is_done:
            self.position.is_done = True
            self.source.positions.change(self.position)

    def has_tail(self, offset: int, tail: tuple[int, int]) -> bool | None:
        """Return whether the bytes before ``offset`` have that tail; None: the file is shorter.

        Raises OSError.
        """
        assert self.content is not None
        length, crc = tail
        data = self.content.read(offset - length, length)
        return zlib.crc32(data) == crc if len(data) == length else None

    def has_other_tail(self) -> bool:
        """Whether other bytes than those that were shipped are before the position of a plain file.

        Then it is another file with the same inode and the same head. Raises OSError.
        """
        position = self.position
        return not self.is_gzip and self.has_tail(position.offset, position.tail) is False

    def begin_at(self, offset: int, tail: tuple[int, int], partition: int) -> None:
        """Start at ``offset``: another file with the same content was shipped to ``partition``."""
        self.position.offset = self.read = offset
        self.position.tail = tail
        self.position.partition = partition
        self.source.positions.change(self.position)

    def _read_too_long(self, most: int) -> Chunk | None:
        """Return the record of a line to be truncated, once its end is found."""
        assert self.content is not None
        framer = self._framing()
        while True:
            data = self.content.read(self.read + self.scanned, most)
            if len(data) < framer.encoding.width:  # nothing, or a part of a character
                self.rest = self.scanned + len(data)
                return None
            lines, _, _ = framer.encoding.cut(data)
            if lines:
                break
            self.scanned += framer.encoding.whole(len(data))
            if len(data) == most:
                return self._nothing()
        end = self.scanned + len(lines[0]) + framer.encoding.width
        head = self.content.read(self.read, framer.limit)
        length = min(end, _TAIL_BYTES)
        tail = self.content.read(self.read + end - length, length)
        if self._was_emptied():
            return self._nothing()
        self.scanned = 0
        self.rest = 0
        return self._chunk(Frame([framer.truncated(head)], [0], end), tail)

    def _chunk(self, frame: Frame, tail: bytes, *, is_last: bool = False) -> Chunk:
        """Return the records of a frame, which ``tail`` are the last bytes of."""
        start, end = self.read, self.read + frame.consumed
        self.read = end
        mark = (len(tail), zlib.crc32(tail))
        self.acks.add(end, mark, self.behind_since or self.changed_at)
        values, offsets = frame.values, frame.offsets
        return Chunk(self, self.incarnation, start, end, mark, values, offsets, is_last)

    def _nothing(self) -> Chunk:
        """Return no records of a file that may have some."""
        return Chunk(self, self.incarnation, self.read, self.read, (0, 0), (), None)

    @property
    def _head_is_whole(self) -> bool:
        """Whether all the bytes that tell the file from others have been there and have matched."""
        known = self.position.fingerprint
        return known is self._head_of and len(self._head) >= self.source.fingerprint_bytes

    def _was_emptied(self) -> bool:
        """Whether the file was truncated meanwhile: what was read may be of its new content."""
        known = self.position.fingerprint
        if self.is_gzip or not known.length:
            return False
        assert self.content is not None
        head = self.content.read(0, known.length)
        if self._begins_alike(head):
            return False
        self._restart(Fingerprint.of(head), self.size)
        return True

    def _begins_alike(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` may be the one that is known, grown since.

        The bytes that matched once are kept: to compare them takes a tenth of a hash.
        """
        known = self.position.fingerprint
        if known is self._head_of:
            return head.startswith(self._head)
        if not known.matches(head):
            return False
        self._head, self._head_of = head[: known.length], known
        return True

    def _skip_hole(self) -> bool:
        """Skip a hole of a sparse file and the NUL bytes after it; return whether there was one.

        A hole at the end of the file stays unread: data may still be written there.
        """
        assert self.content is not None
        behind = self.content.next_data(self.read)
        if behind == self.read:
            return False
        if behind is None:
            assert self.descriptor is not None
            self.size = os.fstat(self.descriptor).st_size
            self.rest = self.size - self.read
            return True
        page = self.content.read(behind, _PAGE_BYTES)
        self.read = behind + len(page) - len(page.lstrip(b"\0"))
        self.rest = 0
        return True
