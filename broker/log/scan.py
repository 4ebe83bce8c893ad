"""One batch after another in a file: the walk that recovery, verification and indexing share."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from qbus.records import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header

from .files import File

_CHUNK: Final = 1 << 20
_HEADERS_CHUNK: Final = 1 << 16


class Place(NamedTuple):
    """A batch boundary: the position where the batch that begins with ``offset`` begins.

    Before a batch that has a gap before it, ``offset`` may be the one that the gap begins with.
    """

    offset: int
    position: int


class PlacedBatch(NamedTuple):
    """A batch's header and where in the file the batch begins."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.header.size

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last record."""
        return self.header.last_offset + 1


class BadBatch(Exception):  # noqa: N818 - what was found, as in CorruptBatch
    """What stands at ``position``, where the batch of ``offset`` should be, is no such batch.

    ``intact`` says that it is a whole batch, its sum right, but of another place in the log.
    ``path`` is the file's, where the one who raises it knows that.
    """

    def __init__(
        self, position: int, offset: int, problem: str, *, intact: bool = False, path: str = ""
    ) -> None:
        super().__init__(problem)
        self.position = position
        self.offset = offset
        self.problem = problem
        self.intact = intact
        self.path = path


def scan(
    file: File,
    position: int,
    end: int,
    offset: int | None,
    *,
    crc: bool = True,
    gaps: bool = False,
    wanted_end: int | None = None,
) -> Iterator[PlacedBatch]:
    """The batches from ``position`` to ``end``, the first of which must begin with ``offset``.

    Each must follow the one before, without a gap unless there may be ``gaps``, be whole, and, with
    ``crc``, have the right sum.
    An ``offset`` of None takes the first batch's word for it. ``wanted_end``: whoever asks goes no
    further than to the batch that reaches it, so no more than that is read ahead. Raises
    :class:`BadBatch` where one does not, OSError when the file cannot be read.
    """
    if wanted_end is None:
        wanted_end = end
    window = _Window(file, end, wanted_end, _CHUNK if crc else _HEADERS_CHUNK)
    while position < end:
        try:
            header = _read(window, position, end, crc=crc)
        except CorruptBatch as error:
            raise BadBatch(position, -1 if offset is None else offset, str(error)) from error
        if offset is None:
            offset = header.base_offset
        try:
            check_place(header, offset, gaps=gaps)
        except CorruptBatch as error:
            raise BadBatch(position, offset, str(error), intact=crc) from error
        placed = PlacedBatch(position, header)
        yield placed
        position = placed.end
        offset = placed.next_offset


class _Window:
    """The part of a file that was read last. It is read ahead in chunks, up to ``wanted_end``."""

    __slots__ = ("_chunk", "_end", "_file", "_start", "_wanted_end", "data")

    def __init__(self, file: File, end: int, wanted_end: int, chunk: int) -> None:
        self._file = file
        self._end = end
        self._wanted_end = wanted_end
        self._chunk = chunk
        self._start = 0
        self.data = b""

    def seek(self, position: int, length: int) -> int:
        """Where in ``data`` the bytes at ``position`` are; it holds ``length`` if the file does."""
        read_end = self._start + len(self.data)
        if self._start <= position and position + length <= read_end:
            return position - self._start
        length = min(length, self._end - position)
        size = max(min(self._chunk, self._wanted_end - position), length)
        if size > length or not self._start <= position < read_end:
            self.data = self._file.read_at(position, size)
        else:  # the last batch that is wanted: its first part may be there
            known = self.data[position - self._start :]
            self.data = known + self._file.read_at(read_end, size - len(known))
        self._start = position
        return 0


def _read(window: _Window, position: int, end: int, *, crc: bool) -> BatchHeader:
    at = window.seek(position, HEADER_SIZE)
    header = read_header(window.data, at)
    if position + header.size > end:
        raise CorruptBatch(f"batch of {header.size} bytes is cut at {end - position}")
    if crc:
        at = window.seek(position, header.size)
        check_crc(window.data, header, at)
    return header


def check_place(header: BatchHeader, offset: int, *, gaps: bool) -> None:
    """Raise CorruptBatch unless the batch begins with ``offset`` and its counts agree.

    With ``gaps`` it may begin later and hold fewer records: compaction leaves such ones. One
    without any stands for records that are gone, in any log.
    """
    base, delta, count = header.base_offset, header.last_offset_delta, header.records_count
    if base != offset and not (gaps and base > offset):
        raise CorruptBatch(f"batch begins with offset {base}, not {offset}")
    if delta < 0 or (count not in {0, delta + 1} and not (gaps and 0 <= count <= delta)):
        raise CorruptBatch(f"{count} records do not fit last offset delta {delta}")
