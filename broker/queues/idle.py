"""Since when the partition of a queue has been idle, by what is seen of it from time to time."""

from typing import Final, NamedTuple

GRACE_S: Final = 60.0
"""A new leader waits so long at least: clients that wait for jobs connect again meanwhile."""


class Use(NamedTuple):
    """What is seen of a partition at one moment.

    ``end_offset``: where its log ends. ``bytes_out``: how much consumers have read since the start.
    ``used_at``: when a share group last took records or waited for any (monotonic, in seconds).
    ``is_in_use``: a consumer, a worker or a producer waits for something now.
    """

    end_offset: int
    bytes_out: int
    used_at: float
    is_in_use: bool


class IdleTime:
    """Since when a partition has been idle. Times in seconds, monotonic.

    ``since`` is when it was last seen in use.
    """

    __slots__ = ("_followed_since", "_seen", "since")

    def __init__(self, now: float, written_s: float) -> None:
        """Follow it from ``now`` on. Its log was last written to ``written_s`` seconds ago.

        Only that outlives a broker: so a restart does not begin the time anew.
        """
        self.since = now - max(written_s, 0.0)
        self._followed_since = now
        self._seen: tuple[int, int] | None = None

    def saw(self, use: Use, now: float) -> None:
        """Take in what is seen ``now``."""
        before, self._seen = self._seen, (use.end_offset, use.bytes_out)
        if use.is_in_use or (before is not None and before != self._seen):
            self.since = now
        self.since = max(self.since, use.used_at)

    def used(self, now: float) -> None:
        """It is used ``now``."""
        self.since = now

    def is_over(self, limit_s: float, now: float) -> bool:
        """Whether it has been idle for ``limit_s``, and followed for long enough to know."""
        followed_s = now - self._followed_since
        return now - self.since >= limit_s and followed_s >= min(limit_s, GRACE_S)
