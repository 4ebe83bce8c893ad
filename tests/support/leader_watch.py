"""When the leaders of a topic's partitions changed, as far as the brokers tell."""

import threading
import time
from types import TracebackType
from typing import Self

from .cluster_view import View

_PAUSE_S = 0.2
_MARGIN_NS = 1_000_000_000
"""How much earlier, or later, than all brokers tell of it a leader may have changed."""


class LeaderWatch:
    """Asks all live brokers again and again, from entry to exit.

    A leader may have changed at any time between two moments at which all told the same.
    """

    def __init__(self, view: View, topic: str) -> None:
        self._view = view
        self._topic = topic
        self._breaks: list[tuple[int, int]] = []
        self._agreed: dict[int, tuple[int, int]] = {}
        self._agreed_at = time.monotonic_ns()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def may_have_changed(self, began: int, ended: int) -> None:
        """Note what the brokers may not tell of; in nanoseconds of the monotonic clock."""
        self._breaks.append((began - _MARGIN_NS, ended + _MARGIN_NS))

    def breaks(self) -> list[tuple[int, int]]:
        """From when to when leaders may have changed, until now."""
        return [*self._breaks, (self._agreed_at - _MARGIN_NS, time.monotonic_ns())]

    def _run(self) -> None:
        while not self._is_over.wait(_PAUSE_S):
            began = time.monotonic_ns()
            answers = self._view.epochs(self._topic)
            if not answers or any(one != answers[0] for one in answers):
                continue
            if answers[0] != self._agreed:
                self.may_have_changed(self._agreed_at, time.monotonic_ns())
                self._agreed = answers[0]
            self._agreed_at = began
