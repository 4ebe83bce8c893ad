"""Threads that work goes on in, where the system allows no more of them, too."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_log = logging.getLogger(__name__)

CANNOT_START: Final = "can't start new thread"
"""What Python says when the system allows no more threads."""

HOW_TO_RAISE: Final = (
    "the system allows no more threads: raise 'ulimit -u', TasksMax= in a systemd unit,"
    " --pids-limit in Docker"
)
_LINE_INTERVAL_S: Final = 10.0


class Threads(ThreadPoolExecutor):
    """An executor with a thread from the start, which goes on with those that it has.

    The executor of the standard library raises RuntimeError for work that finds no free thread, and
    does the work all the same, later.
    """

    def __init__(self, most: int, name: str) -> None:
        """At ``most`` so many threads. Raises RuntimeError when there cannot be one."""
        super().__init__(most, name)
        self._name = name
        self._next_line_at = 0.0
        self.submit(_nothing)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                raise
            now = time.monotonic()
            if now >= self._next_line_at:
                self._next_line_at = now + _LINE_INTERVAL_S
                _log.warning(
                    "%s goes on with %d threads: %s; %s",
                    *(self._name, len(self._threads), error, HOW_TO_RAISE),
                )


def _nothing() -> None:
    """Have the first thread started."""
