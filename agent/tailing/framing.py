"""Framing: from the bytes of a file to records. Pure and stateless.

The data given always begin where the last record ended; bytes without a whole record are given
again, with more after them. So an unfinished line takes no memory, and the boundaries of reads do
not change the records.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

from .text import AS_IS, Encoding


class Flush(IntEnum):
    """Which unfinished data are completed."""

    NOTHING = 0
    LINES = 1
    """The last record of several lines ends with the last whole line."""
    ALL = 2
    """The last line ends at the end of the data as well."""


def flush_after(*, is_rotated: bool, has_lines: bool, partial: float, lines: float) -> float | None:
    """Return the seconds of silence after which unfinished data are completed; None: never.

    is_rotated: the file was renamed or deleted. has_lines: the data hold whole lines, which may be
    a record. partial, lines: the time-outs of a partial line and of whole lines.
    """
    if is_rotated:
        return min(partial, lines) if has_lines else partial
    return lines if has_lines else None


class Frame:
    """Records. ``offsets``: where each begins, from the start of the data; None if not wanted.

    ``consumed``: the bytes they are made of. ``is_too_long``: the data begin with a line that has
    to be truncated, and whose end is not found yet.
    """

    __slots__ = ("consumed", "is_too_long", "offsets", "values")

    def __init__(
        self,
        values: Sequence[bytes],
        offsets: Sequence[int] | None,
        consumed: int,
        *,
        is_too_long: bool = False,
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.consumed = consumed
        self.is_too_long = is_too_long


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups lines to records: a line in which ``start`` is found begins a record.

    A record ends before the next such line, and has at most ``max_lines`` lines.
    """

    start: re.Pattern[bytes]
    max_lines: int = 500

    def group(
        self, lines: Sequence[bytes], sizes: Sequence[int], limit: int, *, is_whole: bool
    ) -> tuple[list[bytes], list[int]]:
        """Return records, and how many bytes of the file each takes.

        sizes: the bytes of the lines. limit: the most bytes of a record of several lines.
        is_whole: the last record is complete; else it is left out.
        """
        records: list[bytes] = []
        taken: list[int] = []
        first = size = 0
        for index, line in enumerate(lines):
            is_full = index - first >= self.max_lines or size + len(line) > limit
            if index > first and (is_full or self.start.search(line)):
                records.append(b"\n".join(lines[first:index]))
                taken.append(sum(sizes[first:index]))
                first, size = index, 0
            size += len(line) + 1
        if is_whole and first < len(lines):
            records.append(b"\n".join(lines[first:]))
            taken.append(sum(sizes[first:]))
        return records, taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Framer:
    """The framing of a source's files. ``limit``: the most bytes of a line or a group of lines.

    ``marker``: the end of a line that is truncated to the limit; None: longer lines are split.
    """

    limit: int
    marker: bytes | None = None
    encoding: Encoding = AS_IS
    grouping: Grouping | None = None
    wants_offsets: bool = False

    @property
    def most(self) -> int:
        """So many bytes always hold a record, or a line that is too long."""
        longest = self.limit + 8
        if self.grouping is None:
            return longest
        # Lines are grouped by their bytes in UTF-8, which take up to so many times as many here.
        return longest + (longest + self.grouping.max_lines) * self.encoding.width

    def frame(self, data: bytes, flush: Flush = Flush.NOTHING) -> Frame:
        """Return the records that ``data`` begin with."""
        raw, consumed, rest = self._cut(data)
        lines = self.encoding.without_returns(raw, data)
        is_long = len(data) > self.limit
        if not is_long and self.grouping is None and not self.wants_offsets:
            if flush is Flush.ALL and rest:
                lines, consumed = [*lines, rest], len(data)
            return Frame(self.encoding.to_utf8(lines), None, consumed)
        sizes = [len(line) + self.encoding.width for line in raw]
        is_whole = flush is not Flush.NOTHING
        if is_long:
            lines, sizes, rest = self._shorten(lines, sizes, rest)
            if len(rest) > self.limit + self.encoding.width:
                if not lines:
                    return Frame((), None, 0, is_too_long=True)
                is_whole = True  # such a line is a record of its own
        if flush is Flush.ALL and rest:
            lines, sizes = [*lines, rest], [*sizes, len(rest)]
        values = self.encoding.to_utf8(lines)
        if self.grouping is not None:
            values, sizes = self.grouping.group(values, sizes, self.limit, is_whole=is_whole)
        offsets = list(accumulate(sizes, initial=0))
        consumed = offsets.pop()
        return Frame(values, offsets, consumed)

    def truncated(self, head: bytes) -> bytes:
        """Return the record of a line that is too long and begins with ``head``."""
        return self.encoding.to_utf8([self._truncate(head)])[0]

    def _truncate(self, line: bytes) -> bytes:
        assert self.marker is not None
        marker = self.encoding.from_utf8(self.marker)
        width = self.encoding.width
        return line[: max(0, self.limit - len(marker)) // width * width] + marker

    def _cut(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Return whole lines without newlines, the bytes they take, and the rest."""
        if self.encoding.width > 1:
            return self.encoding.cut(data)
        consumed = data.rfind(b"\n") + 1
        if not consumed:
            return [], 0, data
        return data[: consumed - 1].split(b"\n"), consumed, data[consumed:]

    def _shorten(
        self, lines: list[bytes], sizes: list[int], rest: bytes
    ) -> tuple[list[bytes], list[int], bytes]:
        """Truncate or split what is too long; a rest that will be truncated stays as it is."""
        width = self.encoding.width
        limit = self.limit // width * width
        short: list[bytes] = []
        taken: list[int] = []
        for line, size in zip(lines, sizes, strict=True):
            if len(line) > limit and self.marker is None:
                while len(line) > limit:
                    short.append(line[:limit])
                    taken.append(limit)
                    line, size = line[limit:], size - limit
            elif len(line) > limit:
                line = self._truncate(line)
            short.append(line)
            taken.append(size)
        # A line as long as the limit is not split because of its carriage return.
        while self.marker is None and len(rest) > limit + width:
            short.append(rest[:limit])
            taken.append(limit)
            rest = rest[limit:]
        return short, taken, rest
