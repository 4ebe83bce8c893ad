"""How long a member may hold what others are to have.

That is its rebalance time-out, from when somebody else was first to have some of it. Until it is
told to give that up, it may be told again of what it was given and may have missed: that takes a
part of the time, so that there is enough left to give it up.
"""

import math
from dataclasses import dataclass
from typing import Final

from .assignors import Partitions

_LEAST_OFFERS: Final = 3
_OFFERED_INTERVALS: Final = 4
"""So often, and for so long, a member is told again of what it was given and may have missed."""


@dataclass(slots=True)
class Release:
    """The time that one member has. Monotonic seconds; nothing of it is stored.

    by: when it must have given up what it is to, or, of a classic member, have joined again.
    what: what of that it was to give up already when ``by`` was set.
    offered_until: how long it is told of what it did not list before it is to give that up.
    """

    by: float = math.inf
    what: Partitions = frozenset()
    offered_until: float = math.inf

    def is_patient(self, offers: int, now: float) -> bool:
        """Whether it may be told once more, after so many times in a row."""
        return offers < _LEAST_OFFERS or now < self.offered_until

    def limit(self, now: float, timeout_ms: int) -> None:
        """Have the time begin now, unless it has begun. ``timeout_ms``: for rebalances."""
        if self.by == math.inf:
            self.by = now + max(timeout_ms, 0) / 1000

    def note(
        self,
        releasing: Partitions,
        now: float,
        *,
        is_told: bool,
        timeout_ms: int,
        heartbeat_ms: int,
    ) -> None:
        """Note what it holds and others are to have; ``is_told``: it is to give that up now.

        That has the time that it had before, if all of it had one.
        """
        limited = self.what & releasing
        if not limited or (is_told and limited != releasing):
            limited, self.by = releasing, math.inf
        self.what = limited
        if not releasing:
            return
        if self.by == math.inf:
            patience_ms = min(_OFFERED_INTERVALS * heartbeat_ms, timeout_ms / 2)
            self.offered_until = now + patience_ms / 1000
        self.limit(now, timeout_ms)
