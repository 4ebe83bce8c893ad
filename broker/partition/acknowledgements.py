"""Who waits for what it appended to be acknowledged."""

from collections import deque
from typing import Protocol

from qbus.errors import ErrorCode


class AckWaiter(Protocol):
    """Waits for the high watermark to pass what it appended."""

    def done(self) -> bool:
        """Whether it waits no more."""

    def settled(self, token: object, code: ErrorCode) -> None:
        """What was registered with ``token`` is acknowledged (NONE), or never will be."""


class Acknowledgements:
    """Those who wait at one partition, in the order of what they appended."""

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

    def reach(self, offset: int) -> None:
        """Everything below ``offset`` is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, waiter, token = waiting.popleft()
            waiter.settled(token, ErrorCode.NONE)

    def refuse(self, code: ErrorCode) -> None:
        """Nobody who waits now will be acknowledged."""
        waiting = self._waiting
        while waiting:
            _, waiter, token = waiting.popleft()
            waiter.settled(token, code)
