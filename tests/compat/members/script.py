"""Helpers of the member scripts: they notice SIGTERM, and print events."""

import json
import signal
from collections.abc import Iterable

#: Short enough for a death to be noticed soon, long enough for a busy machine.
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_MS = 200


class Stopping:
    """True once SIGTERM has arrived."""

    def __init__(self) -> None:
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def __bool__(self) -> bool:
        return self._stopping

    def _stop(self, *_: object) -> None:
        self._stopping = True


class Teller:
    """Prints each change of the assignment, and each consumed record."""

    def __init__(self) -> None:
        self._assigned: set[tuple[str, int]] = set()

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Print the assignment if it differs from the last one."""
        now = set(partitions)
        if now != self._assigned:
            self._assigned = now
            print(json.dumps({"assigned": sorted(now)}), flush=True)

    def consumed(self, partition: int, offset: int) -> None:
        """Print the place of a record that was consumed and committed."""
        print(json.dumps({"consumed": [partition, offset]}), flush=True)
