"""How long to leave alone what failed: longer each time, and never all at the same moment."""

import random

_FIRST_S = 0.05
_JITTER = 0.2


class Backoff:
    """The waits of one thing that may fail again and again; ``failures`` since it worked last."""

    __slots__ = ("_longest_s", "failures")

    def __init__(self, longest_s: float) -> None:
        """``longest_s``: the wait that it doubles up to, in seconds."""
        self._longest_s = longest_s
        self.failures = 0

    def failed(self) -> float:
        """It failed; how many seconds to wait, give or take a fifth."""
        wait = min(_FIRST_S * (1 << min(self.failures, 30)), self._longest_s)
        self.failures += 1
        return wait * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load

    def succeeded(self) -> None:
        """It works: the next failure counts as the first one."""
        self.failures = 0
