"""How long requests to a metadata store took."""

from bisect import bisect_left

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds; above the last is one more."""


class Timings:
    """A histogram: requests by bucket, and their ``seconds`` together."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
