"""Frames out of a byte stream, received where they are looked at: a 4-byte length, then the bytes.

A connection to a leader brings much and is kept, so it has a buffer of its own, which becomes as
large as its largest answer and is used again and again: to fill a new one with zeros would cost
half of receiving into it.
"""

from collections.abc import Iterator
from struct import Struct

from qbus.errors import WireError

_LENGTH = Struct(">i")
_PREFIX = _LENGTH.size
_LEAST_BYTES = 64 * 1024
_KEPT_BYTES = 16 * 1024 * 1024  # what is larger is given back when it was looked at
_GROWTH = 4


class FrameBuffer:
    """Receive into :meth:`target`, say how much with :meth:`received`, take the :meth:`frames`.

    A frame is void with the next call of :meth:`target`. What a length promises is believed only as
    the bytes come: memory is at most a few times what was received.
    """

    __slots__ = ("_end", "_max_frame", "_start", "_view")

    def __init__(self, max_frame: int) -> None:
        """``max_frame``: the most bytes of a frame."""
        self._max_frame = max_frame
        self._view = memoryview(bytearray(_LEAST_BYTES))
        self._start = 0
        self._end = 0

    @property
    def capacity(self) -> int:
        """Bytes of memory that it holds."""
        return len(self._view)

    def target(self) -> memoryview:
        """Where to receive next; never empty."""
        left = self._end - self._start
        if not left:
            self._start = self._end = 0
            if self.capacity > _KEPT_BYTES:
                self._view = memoryview(bytearray(_LEAST_BYTES))
        elif self._needed(left) > self.capacity - self._start:
            self._make_room(left)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """``count`` bytes were put into the target."""
        self._end += count

    def frames(self) -> Iterator[memoryview]:
        """The frames that are whole, without their lengths.

        Raises WireError: a length is not positive, or larger than a frame may be.
        """
        while self._end - self._start >= _PREFIX:
            size = self._size_at_start()
            begin = self._start + _PREFIX
            if self._end - begin < size:
                return
            self._start = begin + size
            yield self._view[begin : begin + size]

    def _needed(self, left: int) -> int:
        """How much room there must be from the start on: for a frame, or as much as is earned."""
        if left < _PREFIX:
            return _LEAST_BYTES
        total = _PREFIX + self._size_at_start()
        return total if total <= _LEAST_BYTES else max(left + 1, min(total, _GROWTH * left))

    def _make_room(self, left: int) -> None:
        """Move what is left to the front, of a larger buffer where this one is too small."""
        needed = self._needed(left)
        pending = self._view[self._start : self._end]
        if needed > self.capacity:
            self._view = memoryview(bytearray(max(needed, min(2 * self.capacity, _KEPT_BYTES))))
            self._view[:left] = pending
        else:
            self._view[:left] = pending  # overlapping is no trouble: it is moved as a whole
        self._start, self._end = 0, left

    def _size_at_start(self) -> int:
        size: int = _LENGTH.unpack_from(self._view, self._start)[0]
        if not 0 < size <= self._max_frame:
            raise WireError(f"a frame of {size} bytes; the limit is {self._max_frame}")
        return size
