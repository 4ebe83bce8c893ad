"""From the bytes of a file to records. Pure, and without a state.

What is given always begins where the last record ended; what no record can be made of yet is given
again, with more behind it. So an unfinished line costs no memory, and where reads end makes no
difference to the records.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

from .text import AS_IS, Encoding


class Flush(IntEnum):
    """How much of what may still go on is taken for whole."""

    NOTHING = 0
    LINES = 1
    """A record of several lines ends with the last whole line."""
    ALL = 2
    """The last line ends, too."""


def flush_after(*, is_left: bool, has_lines: bool, partial: float, lines: float) -> float | None:
    """Seconds of silence after which what is unfinished is taken for whole; None: never.

    is_left: its writer has left the file, for it was renamed or deleted. has_lines: the rest holds
    whole lines, that may be a record. partial, lines: what each of the two is given.
    """
    if is_left:
        return min(partial, lines) if has_lines else partial
    return lines if has_lines else None


class Frame(NamedTuple):
    """Records. ``offsets``: where each begins, from the start of the data; None if nobody asked.

    ``consumed``: bytes they are made of. ``is_too_long``: the data are the beginning of a line that
    has to be truncated, and the end of which is still to be found.
    """

    values: Sequence[bytes]
    offsets: Sequence[int] | None
    consumed: int
    is_too_long: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    """A line that ``start`` is found in begins a record, which ends before the next such line.

    It also ends before it has more than ``max_lines`` lines.
    """

    start: re.Pattern[bytes]
    max_lines: int = 500

    def group(
        self, lines: Sequence[bytes], sizes: Sequence[int], limit: int, *, is_whole: bool
    ) -> tuple[list[bytes], list[int]]:
        """Records, and how many bytes of the file each takes.

        sizes: those of the lines. limit: bytes of the largest record, if of more than a line.
        is_whole: the last record does not go on; else it is left out.
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
    """What a source says of its records. ``limit``: bytes of the longest line or group of lines.

    ``marker``: what a line longer than that ends with once it is cut; None: it is split instead.
    """

    limit: int
    marker: bytes | None = None
    encoding: Encoding = AS_IS
    grouping: Grouping | None = None
    wants_offsets: bool = False

    @property
    def most(self) -> int:
        """With so many bytes there always is a record, or a line too long."""
        return (self.limit + 8) * (1 if self.grouping is None else 2)

    def frame(self, data: bytes, flush: Flush = Flush.NOTHING) -> Frame:
        """The records that ``data`` begin with."""
        raw, consumed, rest = self._cut(data)
        lines = self.encoding.without_returns(raw, data)
        is_long = len(data) > self.limit
        if not is_long and self.grouping is None and not self.wants_offsets:
            if flush is Flush.ALL and rest:
                lines, consumed = [*lines, rest], len(data)
            return Frame(self.encoding.to_utf8(lines), None, consumed)
        sizes = [len(line) + self.encoding.width for line in raw]
        if is_long:
            lines, sizes, rest = self._shorten(lines, sizes, rest)
            if not lines and len(rest) > self.limit + self.encoding.width:
                return Frame((), None, 0, is_too_long=True)
        if flush is Flush.ALL and rest:
            lines, sizes = [*lines, rest], [*sizes, len(rest)]
        values = self.encoding.to_utf8(lines)
        if self.grouping is not None:
            values, sizes = self.grouping.group(
                values, sizes, self.limit, is_whole=flush is not Flush.NOTHING
            )
        offsets = list(accumulate(sizes, initial=0))
        consumed = offsets.pop()
        return Frame(values, offsets, consumed)

    def truncated(self, head: bytes) -> bytes:
        """What is shipped of a line that is too long and begins with ``head``."""
        return self.encoding.to_utf8([self._truncate(head)])[0]

    def _truncate(self, line: bytes) -> bytes:
        assert self.marker is not None
        marker = self.encoding.from_utf8(self.marker)
        width = self.encoding.width
        return line[: max(0, self.limit - len(marker)) // width * width] + marker

    def _cut(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Whole lines without their newlines, how much they take, and what is behind them."""
        if self.encoding.width > 1:
            return self.encoding.cut(data)
        consumed = data.rfind(b"\n") + 1
        if not consumed:
            return [], 0, data
        return data[: consumed - 1].split(b"\n"), consumed, data[consumed:]

    def _shorten(
        self, lines: list[bytes], sizes: list[int], rest: bytes
    ) -> tuple[list[bytes], list[int], bytes]:
        """Cut or split what is too long; a rest that is to be truncated stays as it is."""
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
        # The carriage return of a line as long as the limit is no reason to split it.
        while self.marker is None and len(rest) > limit + width:
            short.append(rest[:limit])
            taken.append(limit)
            rest = rest[limit:]
        return short, taken, rest
