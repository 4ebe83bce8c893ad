"""Records of several lines: a pattern tells which lines begin one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


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
