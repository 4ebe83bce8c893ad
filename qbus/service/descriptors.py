"""File descriptors of this process: how many it may have, has, and keeps in reserve."""

import errno
import os
import resource
import socket
from pathlib import Path
from typing import Final

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors for want of descriptors: of the process, of the system."""

UNLIMITED: Final = 1 << 62
_OWN_FILES: Final = Path("/proc/self/fd")
_MOST_AT_ONCE: Final = 256


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
