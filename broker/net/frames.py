"""The frames that clients send, read by thousands of connections out of one buffer.

Bytes land in a scratch buffer that all connections share. Only an incomplete frame is kept aside:
an idle connection holds nothing, and a slow one holds little more than it sent.
"""

from typing import Final

from qbus.frames import PREFIX, frame_size

# A frame up to this size gets its buffer at once; a longer one earns it by sending.
_EAGER_BYTES: Final = 64 * 1024
_GROWTH: Final = 4


class RequestFrames:
    """The receiving side of one connection.

    Receive into ``target()``, say how much with ``received()``, take what became whole with
    ``next()``, then ``keep(wanted())``. A frame is valid until the next ``target()``.
    ``max_frame``: the size of the largest one that is taken, which may change.
    """

    __slots__ = ("_end", "_kept", "_scratch", "_start", "_view", "max_frame")

    def __init__(self, scratch: memoryview, max_frame: int) -> None:
        self._scratch = scratch
        self.max_frame = max_frame
        self._kept: bytearray | None = None
        self._view = scratch
        self._start = 0
        self._end = 0

    @property
    def held(self) -> int:
        """Bytes of memory kept for a frame that is not whole yet."""
        return 0 if self._kept is None else len(self._kept)

    @property
    def left(self) -> int:
        """Bytes received that no whole frame was made of yet."""
        return self._end - self._start

    def target(self) -> memoryview:
        """The memory to receive into; never empty after ``keep(wanted())``."""
        if self._kept is None:
            self._view = self._scratch
            self._start = self._end = 0
            return self._scratch
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """``count`` bytes were put into the target."""
        self._end += count

    def next(self) -> memoryview | None:
        """The next frame that is whole, without its length; None: there is none.

        Raises :class:`~qbus.errors.WireError` for an impossible length.
        """
        if self._end - self._start < PREFIX:
            return None
        size = frame_size(self._view, self._start, self.max_frame)
        begin = self._start + PREFIX
        if self._end - begin < size:
            return None
        self._start = begin + size
        return self._view[begin : begin + size]

    def put_back(self, frame: memoryview) -> None:
        """Have ``next()`` return the frame that it returned last once more."""
        self._start -= PREFIX + len(frame)

    def wanted(self) -> int:
        """How much memory the bytes that are left over need now, to be kept and to grow."""
        left = self.left
        if left == 0:
            return 0
        if left < PREFIX:
            return PREFIX
        total = PREFIX + frame_size(self._view, self._start, self.max_frame)
        if self._kept is not None and self._start == 0 and self._end < len(self._kept):
            return len(self._kept)
        return max(left, total if total <= _EAGER_BYTES else min(total, _GROWTH * left))

    def keep(self, capacity: int) -> None:
        """Move what is left over into ``capacity`` bytes of its own; 0 when nothing is left."""
        if capacity == 0:
            self._kept = None
            self._view = self._scratch
            self._start = self._end = 0
            return
        if self._kept is not None and self._start == 0 and capacity == len(self._kept):
            return
        left = self.left
        kept = bytearray(capacity)
        kept[:left] = self._view[self._start : self._end]
        self._kept = kept
        self._view = memoryview(kept)
        self._start, self._end = 0, left
