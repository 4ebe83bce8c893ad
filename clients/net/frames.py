"""Frames out of a byte stream: a 4-byte length, then the bytes, received where they are used."""

from collections import deque

from qbus.errors import WireError

_PREFIX = 4
_SMALL = 64 * 1024
_TRUSTED = 4 * 1024 * 1024 + 256 * 1024
"""Bytes allocated because a length announces them: a usual fetch response. More only as they
arrive.
"""
_SPARE = 4
"""Number of buffers kept for later large frames: one is filled while others are read."""


class FrameReader:
    """Cuts received bytes into frames; does no IO.

    Small frames share one buffer, many to a read. A larger frame gets a buffer of its own, and the
    rest of it is received there, so that large responses are never copied. A false length costs at
    most twice the memory of the bytes that arrive. A buffer without views is used again, because
    filling a new one with zeros costs half of receiving into it.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared = bytearray(_SMALL)
        self._buffer = self._shared
        self._filled = 0
        self._given = memoryview(b"")
        self._spare: deque[bytearray] = deque(maxlen=_SPARE)
        self._whole = 0  # size of the large frame being received

    def buffer(self) -> memoryview:
        """Return where to receive next; never empty. Invalidates the view returned before."""
        if self._buffer is self._shared:
            end = _SMALL
        else:
            if self._filled == len(self._buffer):
                self._given.release()
                self._buffer += bytes(min(self._filled, self._whole - self._filled))
            end = self._whole
        self._given = memoryview(self._buffer)[self._filled : end]
        return self._given

    def received(self, count: int) -> list[memoryview]:
        """Count ``count`` bytes in :meth:`buffer`; return the frames that they complete.

        Raises :class:`~qbus.errors.WireError` for a length that is negative or over the limit.
        """
        self._filled += count
        if self._buffer is not self._shared:
            return self._large_frame()
        frames = []
        shared = memoryview(self._shared)
        pos = 0
        while self._filled - pos >= _PREFIX:
            end = pos + _PREFIX + self._length_at(pos)
            if end > self._filled:
                break
            frames.append(memoryview(bytes(shared[pos + _PREFIX : end])))
            pos = end
        self._keep_rest(pos)
        return frames

    def _large_frame(self) -> list[memoryview]:
        if self._filled < self._whole:
            return []
        frame = memoryview(self._buffer)[_PREFIX : self._whole]
        if len(self._buffer) <= _TRUSTED:
            self._spare.append(self._buffer)
        self._buffer = self._shared
        self._filled = 0
        return [frame]

    def _keep_rest(self, pos: int) -> None:
        rest = self._shared[pos : self._filled]
        self._filled = len(rest)
        if len(rest) >= _PREFIX:
            whole = _PREFIX + self._length_at(pos)
            if whole > _SMALL:
                self._whole = whole
                self._buffer = self._allocate(min(whole, _TRUSTED))
        self._buffer[: len(rest)] = rest

    def _allocate(self, size: int) -> bytearray:
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= size and _is_unused(buffer):
                del self._spare[index]
                return buffer
        return bytearray(size)

    def _length_at(self, pos: int) -> int:
        length = int.from_bytes(self._shared[pos : pos + _PREFIX], "big", signed=True)
        if not 0 <= length <= self._max_frame_bytes:
            raise WireError(f"a frame of {length} bytes; the limit is {self._max_frame_bytes}")
        return length


def _is_unused(buffer: bytearray) -> bool:
    """Whether nobody has a view of ``buffer``: only then can it be resized."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
