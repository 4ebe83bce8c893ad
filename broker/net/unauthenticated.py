"""Connections whose clients have yet to say who they are: bounded, the oldest goes for a new one.

Anybody can open connections and send nothing, and each is kept for as long as a client may take to
authenticate. Where there are too many, the one that has waited longest is closed: who means to
authenticate does so at once, and who waits keeps nobody out. A line a minute says from where most
of them come.
"""

import logging
from collections import Counter, OrderedDict
from typing import Final, Protocol

_log = logging.getLogger(__name__)

_WARNING_INTERVAL_S: Final = 60.0
_PART: Final = 16  # of the limit: how many may come until it is seen who has authenticated


class _Peer(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def is_authenticated(self) -> bool: ...


class Waiting(Protocol):
    """A connection."""

    @property
    def peer(self) -> _Peer:
        """Its client."""

    def close(self, reason: str) -> None:
        """Close it."""


class Unauthenticated:
    """Those of one listener, in the order in which they came. Not thread-safe."""

    def __init__(self, most: int, listener: str) -> None:
        """``most``: at a time; ``listener``: its name, for the log."""
        self.closed = 0
        self._most = most
        self._listener = listener
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()  # its first is found at once
        self._new = 0
        self._told = 0
        self._next_warning_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Waiting, now: float) -> None:
        """Take one on, and close the oldest if there are too many; ``now`` in seconds."""
        self._waiting[connection] = None
        self._new += 1
        if len(self._waiting) <= self._most:
            return
        if self._new * _PART >= self._most:  # to look at all for each would be dear in a flood
            self.look()
        while len(self._waiting) > self._most:
            oldest = next(iter(self._waiting))
            if oldest.peer.is_authenticated:
                del self._waiting[oldest]
            else:
                self._close(oldest, now)

    def discard(self, connection: Waiting) -> None:
        """Forget one that is closed."""
        self._waiting.pop(connection, None)

    def look(self) -> None:
        """Forget those that have authenticated meanwhile; call it regularly."""
        self._new = 0
        for one in [one for one in self._waiting if one.peer.is_authenticated]:
            del self._waiting[one]

    def _close(self, oldest: Waiting, now: float) -> None:
        if now >= self._next_warning_at:
            self._warn(now)
        self.closed += 1
        del self._waiting[oldest]
        oldest.close(f"more than {self._most} clients have not authenticated")

    def _warn(self, now: float) -> None:
        hosts = Counter(one.peer.host for one in self._waiting)
        ((host, count),) = hosts.most_common(1)
        _log.warning(
            "more than %d clients of listener %s have not authenticated, %d of them at %s: those"
            " that have waited longest are closed for new ones"
            " (sasl.max.unauthenticated.connections; %d closed since the last such line)",
            *(self._most, self._listener, count, host, self.closed - self._told),
        )
        self._told = self.closed
        self._next_warning_at = now + _WARNING_INTERVAL_S
