"""The C library's allocator, told to give large memory back.

By default glibc learns from the first large request to keep such memory for ever, and gives each
thread an arena of its own; a broker's large requests are few and its threads many.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MIB = 1 << 20


def give_back_early() -> None:
    """Return blocks from 4 MiB on to the system when they are freed; share two arenas.

    Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 4 * _MIB)
        mallopt(_M_TRIM_THRESHOLD, 8 * _MIB)
        mallopt(_M_ARENA_MAX, 2)
