"""Who watches a partition: for what becomes visible, or for all that becomes different."""

from typing import Protocol


class Watcher(Protocol):
    """Waits for records to become visible.

    Must not add or remove watchers before its methods return.
    """

    def advanced(self, size: int) -> None:
        """``size`` more bytes can be read; 0: something else changed, as the leader or the log."""


class ReplicaWatcher(Protocol):
    """A follower on another broker, as its leader's partition sees it. The same rule holds."""

    @property
    def asked_at(self) -> float:
        """When it asked last, a monotonic time."""

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""

    def changed(self, *, at_once: bool) -> None:
        """Something else: at once, as the leader or the log, or where the high watermark is."""
