"""Splits a byte stream into frames, each a 4-byte length and that many bytes, without copying them.

A connection to a leader receives much and lasts, so it has a buffer of its own. The buffer grows to
the largest response and is reused: zeroing a new one would cost half as much as receiving into it.
"""

from collections.abc import Iterator
from struct import Struct

from qbus.errors import WireError

_LENGTH = Struct(">i")
_PREFIX = _LENGTH.size
_LEAST_BYTES = 64 * 1024
_KEPT_BYTES = 16 * 1024 * 1024  # a larger buffer is released after its frame
_GROWTH = 4


class FrameBuffer:
    """Receive into :meth:`target`, report the bytes to :meth:`received`, then read :meth:`frames`.

    A frame is valid until the next call of :meth:`target`. The buffer grows with what is received,
    not with the announced length: it is at most a few times as large.
    """

    __slots__ = ("_end", "_max_frame", "_start", "_view")

    def __init__(self, max_frame: int) -> None:
        """``max_frame``: the maximum size of a frame, in bytes."""
        self._max_frame = max_frame
        self._view = memoryview(bytearray(_LEAST_BYTES))
        self._start = 0
        self._end = 0

    @property
    def capacity(self) -> int:
        """The size of the buffer, in bytes."""
        return len(self._view)

    def target(self) -> memoryview:
        """The memory to receive into; never empty."""
        left = self._end - self._start
        if not left:
            self._start = self._end = 0
            if self.capacity > _KEPT_BYTES:
                self._view = memoryview(bytearray(_LEAST_BYTES))
        elif self._needed(left) > self.capacity - self._start:
            self._make_room(left)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that ``count`` bytes were received into the target."""
        self._end += count

    def frames(self) -> Iterator[memoryview]:
        """Yield the complete frames, without their lengths.

        Raises WireError for a length that is not positive or above the maximum.
        """
        while self._end - self._start >= _PREFIX:
            size = self._size_at_start()
            begin = self._start + _PREFIX
            if self._end - begin < size:
                return
            self._start = begin + size
            yield self._view[begin : begin + size]

    def _needed(self, left: int) -> int:
        """The room needed from the start on: a whole frame, or what was earned by receiving."""
        if left < _PREFIX:
            return _LEAST_BYTES
        total = _PREFIX + self._size_at_start()
        return total if total <= _LEAST_BYTES else max(left + 1, min(total, _GROWTH * left))

    def _make_room(self, left: int) -> None:
        """Move the rest to the front, in a larger buffer if this one is too small."""
        needed = self._needed(left)
        pending = self._view[self._start : self._end]
        if needed > self.capacity:
            self._view = memoryview(bytearray(max(needed, min(2 * self.capacity, _KEPT_BYTES))))
            self._view[:left] = pending
        else:
            self._view[:left] = pending  # the ranges may overlap
        self._start, self._end = 0, left

    def _size_at_start(self) -> int:
        size: int = _LENGTH.unpack_from(self._view, self._start)[0]
        if not 0 < size <= self._max_frame:
            raise WireError(f"a frame of {size} bytes; the limit is {self._max_frame}")
        return size
