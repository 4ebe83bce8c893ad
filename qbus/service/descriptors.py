"""File descriptors of this process: how many it may have, has, and keeps in reserve."""

import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors for want of descriptors: of the process, of the system."""

UNLIMITED: Final = 1 << 62
_OWN_FILES: Final = Path("/proc/self/fd")
_MOST_AT_ONCE: Final = 256
_LINE_INTERVAL_S: Final = 10.0

HOW_TO_RAISE: Final = (
    "raise the limit: 'ulimit -n', LimitNOFILE= in a systemd unit, --ulimit nofile= in Docker"
)


def raise_limit() -> int:
    """Take all the descriptors that the system allows; how many those are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def count() -> int | None:
    """How many descriptors this process has; None: unknown, such as for want of a descriptor."""
    try:
        return sum(1 for _ in _OWN_FILES.iterdir()) - 1  # one lists the others
    except OSError:
        return None


def shortage(needed: int) -> OSError | None:
    """Why no ``needed`` files can be opened now for want of descriptors, if so."""
    held: list[int] = []
    try:
        while len(held) < needed:
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error if error.errno in OUT_OF_DESCRIPTORS else None
    finally:
        for descriptor in held:
            os.close(descriptor)
    return None


class Shortages:
    """Says when descriptors run out, how many there are and what has them, now and then.

    ``count``: how often they did. ``users`` tell how many they have, by what that is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self.users: dict[str, Callable[[], int]] = {}
        self._clock = clock
        self._next_line_at = 0.0
        self._untold = 0

    def report(self, doing: str, error: OSError) -> None:
        """``doing`` something failed for want of a descriptor; a line at most every 10 seconds."""
        self.count += 1
        now = self._clock()
        if now < self._next_line_at:
            self._untold += 1
            return
        more = f" (and {self._untold} times before)" if self._untold else ""
        self._next_line_at, self._untold = now + _LINE_INTERVAL_S, 0
        _log.error("cannot %s%s: %s; %s", doing, more, self.describe(error), HOW_TO_RAISE)

    def describe(self, error: OSError) -> str:
        """The error by its name, the limit, and what the descriptors are used for."""
        name = errno.errorcode.get(error.errno or 0, "EMFILE")
        used = ", ".join(f"{what}: {number()}" for what, number in self.users.items())
        open_ = count()
        return (
            f"{error.strerror} ({name}): the limit of this process is {limit()} descriptors"
            + ("" if open_ is None else f", {open_} are open")
            + (f" ({used})" if used else "")
        )


shortages: Final = Shortages()
"""Those of this process."""


class SpareDescriptor:
    """A descriptor in reserve, which lets a process without any other turn clients away."""

    def __init__(self) -> None:
        self._fd = -1
        self._take()

    def turn_away(self, sock: socket.socket) -> int:
        """Accept and close the connections that wait at ``sock``; how many there were."""
        turned_away = 0
        self.close()
        try:
            while turned_away < _MOST_AT_ONCE:
                connection, _ = sock.accept()
                connection.close()
                turned_away += 1
        except OSError:  # there are no more, or another thread took the descriptor
            pass
        self._take()
        return turned_away

    def close(self) -> None:
        """Give the descriptor up."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self) -> None:
        try:
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the next time
            self._fd = -1
