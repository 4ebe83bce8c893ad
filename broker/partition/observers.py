"""Who waits for something at a partition: for acknowledgement, for records, for any change.

Everything here is called in the event loop, from within the partition's own methods: callbacks
never block, and never add or remove observers before they return.
"""

from collections import deque
from typing import Protocol

from qbus.errors import ErrorCode


class AckWaiter(Protocol):
    """Waits for the high watermark to pass what it appended."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """What was registered with ``token`` is acknowledged (NONE), or it never will be."""


class Acknowledgements:
    """The acknowledgements that a partition owes, in the order of the appends."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, AckWaiter, object]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, waiter: AckWaiter, token: object) -> None:
        """Tell ``waiter`` when everything below ``end_offset`` is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():  # time-outs leave in the order they came
            waiting.popleft()
        waiting.append((end_offset, waiter, token))

    def advance(self, offset: int) -> None:
        """Acknowledge everything below ``offset``."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, ErrorCode.NONE)

    def refuse(self, code: ErrorCode) -> None:
        """Answer ``code`` to all who wait."""
        waiting = self._waiting
        while waiting:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, code)


class Watcher(Protocol):
    """A reader that waits for records to become visible."""

    def advanced(self, size: int) -> None:
        """``size`` more bytes can be read; 0: something else changed, such as the leader."""


class ReplicaWatcher(Protocol):
    """A follower on another broker, as its leader's partition sees it."""

    @property
    def asked_at(self) -> float:
        """When it asked last, a monotonic time in seconds."""

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""

    def changed(self, *, at_once: bool) -> None:
        """Something else changed: the leader or the log (at once), or the high watermark."""
