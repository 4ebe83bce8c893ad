"""What readers of a partition may see, and who of them waits to see more.

There are two kinds of readers. Those of all records see what is below the high watermark. Those of
committed records (``isolation.level=read_committed``) see what is below the *last stable offset*:
before it, all transactions have ended, by markers that are acknowledged. Neither is told of hidden
batches at the end: a log seems to end before them.

A reader that waits is told how many bytes it can read more, so that it may wait for more of them
(``fetch.min.bytes``). For that the size of each append is kept until its records are visible.
"""

from collections import deque
from typing import Final

from ..log import Log
from .purgatory import Watcher

_SIZES: Final = 1024  # appends above the high watermark tracked one by one; later ones are merged


class Visibility:
    """The ends of a log as its readers see them, and the readers that wait.

    ``watchers`` wait for the high watermark, ``committed_watchers`` for the last stable offset. The
    high watermark is its partition's, which gives it with every question.
    """

    __slots__ = (
        "_committed_end",
        "_committed_for",
        "_log",
        "_sizes",
        "_unstable_bytes",
        "_visible_end",
        "_visible_for",
        "committed_watchers",
        "watchers",
    )

    def __init__(self, log: Log) -> None:
        self.watchers: dict[Watcher, None] = {}
        self.committed_watchers: dict[Watcher, None] = {}
        self._log = log
        self._sizes: deque[tuple[int, int]] = deque()  # end offset and bytes of each append
        self._visible_for = -1  # the high watermark for which the next is right
        self._visible_end = 0
        self._committed_for = -1  # the last stable offset, likewise
        self._committed_end = 0
        self._unstable_bytes = 0  # that became visible since the last stable offset moved

    def visible_end(self, high_watermark: int) -> int:
        """Where the log ends as far as consumers are told: not behind hidden batches."""
        log = self._log
        if not log.has_hidden:
            return high_watermark
        if self._visible_for != high_watermark:
            self._visible_end = log.visible_end(high_watermark)
            self._visible_for = high_watermark
        return max(self._visible_end, log.log_start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset before which all transactions have ended, by markers that are acknowledged.

        At most the high watermark; it goes back only together with that.
        """
        log = self._log
        if not log.has_transactions:
            return high_watermark
        return max(log.first_unstable(high_watermark), log.log_start_offset)

    def committed_end(self, high_watermark: int) -> int:
        """Where the log ends for consumers of committed records: as :meth:`visible_end`."""
        log = self._log
        if not log.has_transactions:
            return self.visible_end(high_watermark)
        stable = self.last_stable_offset(high_watermark)
        if not log.has_hidden:
            return stable
        if self._committed_for != stable:
            self._committed_end = log.visible_end(stable)
            self._committed_for = stable
        return max(self._committed_end, log.log_start_offset)

    def watched_ends(self, high_watermark: int) -> tuple[int, int]:
        """Both ends, for consumers of all and of committed records; 0 where nobody waits."""
        return (
            self.visible_end(high_watermark) if self.watchers else 0,
            self.committed_end(high_watermark) if self.committed_watchers else 0,
        )

    def written(self, end: int, size: int) -> None:
        """Note that records up to ``end``, of ``size`` bytes, came into the log."""
        sizes = self._sizes
        if len(sizes) >= _SIZES:
            size += sizes.pop()[1]
        sizes.append((end, size))

    def moved(self, high_watermark: int, seen: tuple[int, int]) -> None:
        """Tell who waits that the high watermark moved; ``seen``: :meth:`watched_ends` before."""
        size = 0
        sizes = self._sizes
        while sizes and sizes[0][0] <= high_watermark:
            size += sizes.popleft()[1]
        if self.watchers:
            is_visible = self.visible_end(high_watermark) > seen[0]
            for watcher in self.watchers:
                if is_visible or watcher.sees_hidden:
                    watcher.advanced(size)
        if self._log.has_transactions:
            size = self._unstable_bytes = self._unstable_bytes + size
        if self.committed_watchers and self.committed_end(high_watermark) > seen[1]:
            self._unstable_bytes = 0
            for watcher in self.committed_watchers:
                watcher.advanced(size)

    def wake(self) -> None:
        """Have all who wait look again."""
        for watcher in self.watchers:
            watcher.advanced(0)
        for watcher in self.committed_watchers:
            watcher.advanced(0)

    def forget(self) -> None:
        """Forget what was seen of records: some were cut off."""
        self._sizes.clear()
        self._visible_for = self._committed_for = -1
        self._unstable_bytes = 0
