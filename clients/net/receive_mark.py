"""How much a socket gathers before its reader is woken.

A large response comes in dozens of parts. Each would wake the event loop, which then may have to
wait for the interpreter while another thread reads records: the system gathers them instead.
"""

import asyncio
import os
import re
import socket
import sys
from contextlib import suppress

LARGE = 256 * 1024
"""Bytes to come from which they are gathered."""
MOST = 1024 * 1024
"""Bytes that are gathered at most.

A sender keeps no more than its own buffer in flight, on Linux at most 4 MiB. A mark close to that
leaves both sides waiting, for milliseconds in each large response: the sender for room, the reader
for the rest.
"""
_FIRST_LINUX = (5, 8)
"""Earlier ones may not wake a reader once small packets fill the socket's buffer."""


def _can_gather() -> bool:
    if sys.platform != "linux":
        return False
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and (int(release[1]), int(release[2])) >= _FIRST_LINUX


_CAN_GATHER = _can_gather()


class ReceiveMark:
    """The bytes of a connection's socket that wake its reader (``SO_RCVLOWAT``).

    The end of the stream and errors always wake it. Not for TLS: what is decrypted already waits
    in memory and no longer comes through the socket, so that a mark for a whole frame is too high
    and the reader may wait for bytes that nobody sends.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._sock: socket.socket = transport.get_extra_info("socket")
        self._mark = 1

    def expect(self, nbytes: int) -> None:
        """Have ``nbytes`` gathered, which are sure to come unless the connection ends."""
        mark = min(nbytes, MOST) if nbytes >= LARGE and _CAN_GATHER else 1
        if mark != self._mark:
            self._mark = mark
            with suppress(OSError):  # the socket is closed, or of another kind: it works as before
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
