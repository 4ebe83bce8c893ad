"""A leader that the store does not reach any more: when it stops taking itself for the leader.

Its session may have ended without its knowing, and others may have elected another leader; nobody
tells it. It acknowledges nothing that all replicas must have anyway, but whoever knows of it alone
would go on asking it. So once its session's time is over, it looks whether anybody follows it: who
was elected elsewhere is followed there. Of a partition that nobody follows, and that others could
lead, it says that it is not the leader, and it names none.

While the whole store is down nobody is elected, and the followers go on to follow: then all go on
to serve. A leader that is followed again, or has its connection back, leads as before.
"""

from collections.abc import Collection, Iterable
from typing import Final

from qbus.clock import Clock
from qbus.metadata import SessionState

from .metadata import Metadata
from .partition import Partition

_MISSED: Final = 4  # fetches in a row


class LeadershipLease:
    """Looks from time to time, as long as the store is out of reach."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: Iterable[Partition],
        clock: Clock,
        session_s: float,
        fetch_wait_s: float,
    ) -> None:
        """``partitions`` is iterated anew each time.

        ``session_s``: how long a session lasts without a connection. ``fetch_wait_s``: how long
        followers wait for records before they ask again.
        """
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._session_s = session_s
        self._silence_s = _MISSED * fetch_wait_s
        self._since: float | None = None

    def on_state(self, state: SessionState) -> None:
        """The connection with the store came or went."""
        if state is SessionState.CONNECTED:
            self._since = None
            self._settle(())
        elif self._since is None:
            self._since = self._clock.monotonic()

    def look(self) -> None:
        """Doubt what has to be doubted by now, and trust the rest."""
        now = self._clock.monotonic()
        if self._since is not None and now - self._since >= self._session_s:
            asked_since = now - self._silence_s
            self._settle({one for one in self._partitions if one.may_be_deposed(asked_since)})

    def _settle(self, doubted: Collection[Partition]) -> None:
        self._metadata.doubted.clear()
        self._metadata.doubted.update((one.topic, one.index) for one in doubted)
        for partition in self._partitions:
            if partition in doubted:
                partition.doubt()
            else:
                partition.trust()
