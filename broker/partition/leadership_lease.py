"""How long a leader that lost the metadata store may take itself for the leader.

Its session may have ended without its knowing, and others may have elected another leader; nobody
tells it. It acknowledges no ``acks=all`` record anyway, but clients that know of it alone would go
on asking it. So once its session's time is over, it checks which partitions replicas still fetch:
where others were elected, the replicas fetch there. A partition that no replica fetches, and that
others could lead, is suspected: the broker says that it is not the leader, and names none.

A process that stood still does not know how long its session has been over. It is suspended from
the beginning of its stall, until the store has answered.

While the whole store is down nobody is elected, and the replicas go on fetching: then everybody
goes on serving. A leader that is fetched from again, or has its connection back, leads as before.
"""

from collections.abc import Collection, Iterable
from typing import Final

from qbus.clock import Clock
from qbus.metadata import SessionState

from .metadata import Metadata
from .partition import Partition

_MISSED: Final = 4  # fetches in a row


class LeadershipLease:
    """Checks the partitions that are led here, as long as the store is out of reach."""

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
        followers wait for records before they fetch again.
        """
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._session_s = session_s
        self._silence_s = _MISSED * fetch_wait_s
        self._suspended_since: float | None = None

    def on_state(self, state: SessionState) -> None:
        """Note that the connection with the store came or went."""
        if state is SessionState.CONNECTED:
            self._suspended_since = None
            self._suspect_only(())
        elif self._suspended_since is None:
            self._suspended_since = self._clock.monotonic()

    def stood_still(self, seconds: float) -> None:
        """Note that this process did nothing for so long, and check at once what that means."""
        if self._suspended_since is not None:
            self._suspended_since = min(self._suspended_since, self._clock.monotonic() - seconds)
            self.check()

    def check(self) -> None:
        """Suspect what others may lead by now, and resume the rest."""
        now, since = self._clock.monotonic(), self._suspended_since
        if since is not None and now - since >= self._session_s:
            asked_since = now - self._silence_s
            self._suspect_only({p for p in self._partitions if p.may_be_deposed(asked_since)})

    def _suspect_only(self, suspected: Collection[Partition]) -> None:
        self._metadata.suspected.clear()
        self._metadata.suspected.update(
            (partition.topic, partition.index) for partition in suspected
        )
        for partition in self._partitions:
            if partition in suspected:
                partition.suspect()
            else:
                partition.resume()
