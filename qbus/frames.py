"""Frames out of a byte stream: a 4-byte big-endian length, then that many bytes.

Kafka's protocol frames its requests and its responses so. :class:`FrameReader` is for connections
to brokers. The broker's listeners have a reader of their own, whose connections share memory.
"""

from collections import deque
from struct import Struct
from typing import Final

from .errors import WireError

PREFIX: Final = 4
"""Bytes of the length in front of a frame."""
_LENGTH: Final = Struct(">i")
_SMALL: Final = 64 * 1024
_TRUSTED: Final = 4 * 1024 * 1024 + 256 * 1024

_OTHER_PROTOCOLS: Final = {
    **dict.fromkeys((b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE"), "HTTP"),
    **dict.fromkeys((b"<!DO", b"<!do", b"<htm", b"<HTM", b"<?xm"), "HTTP"),
    **dict.fromkeys((b"\x15\x03", b"\x16\x03"), "TLS"),
    b"SSH-": "SSH",
}
"""How the first bytes of other protocols look where a frame's length is expected.

Some web servers answer what they do not understand with a page alone.
"""


def frame_size(data: memoryview | bytearray, pos: int, limit: int) -> int:
    """Return the size in bytes of the frame whose length stands at ``pos``.

    Raises :class:`~qbus.errors.WireError` if it is not positive or above ``limit``.
    """
    size: int = _LENGTH.unpack_from(data, pos)[0]
    if not 0 < size <= limit:
        for start, protocol in _OTHER_PROTOCOLS.items():
            if bytes(data[pos : pos + PREFIX]).startswith(start):
                raise WireError(f"the other side speaks {protocol}, not Kafka's protocol")
        raise WireError(
            f"the other side announces a frame of {size} bytes, and the limit is {limit}: it does"
            " not speak Kafka's protocol, or is set up for larger ones"
        )
    return size


class FrameReader:
    """Cuts received bytes into frames; does no IO. The frames outlive what is received later.

    Small frames share one buffer, many to a read. A larger frame gets a buffer of its own, and the
    rest of it is received there, so that large responses are never copied. A buffer without views
    is used again, because filling a new one with zeros costs half of receiving into it.
    """

    def __init__(self, max_frame: int, *, trusted: int = _TRUSTED, spare: int = 4) -> None:
        """Accept frames of up to ``max_frame`` bytes.

        trusted: bytes allocated because a length announces them, by default a usual fetch response.
            More are allocated only as they arrive: a false length costs at most twice the memory of
            the bytes received.
        spare: number of buffers of up to ``trusted`` bytes kept for later large frames, so that one
            is filled while others are read.
        """
        self._max_frame = max_frame
        self._trusted = trusted
        self._shared = bytearray(_SMALL)
        self._buffer = self._shared
        self._filled = 0
        self._given = memoryview(b"")
        self._spare: deque[bytearray] = deque(maxlen=spare)
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

    def to_come(self) -> int:
        """Bytes still to be received of a large frame; 0 if none is under way."""
        return 0 if self._buffer is self._shared else self._whole - self._filled

    def received(self, count: int) -> list[memoryview]:
        """Count ``count`` bytes in :meth:`buffer`; return the frames that they complete.

        Raises :class:`~qbus.errors.WireError` for a length that is impossible; see
        :func:`frame_size`.
        """
        self._filled += count
        if self._buffer is not self._shared:
            return self._large_frame()
        frames = []
        shared = memoryview(self._shared)
        pos = 0
        while self._filled - pos >= PREFIX:
            end = pos + PREFIX + frame_size(self._shared, pos, self._max_frame)
            if end > self._filled:
                break
            frames.append(memoryview(bytes(shared[pos + PREFIX : end])))
            pos = end
        self._keep_rest(pos)
        return frames

    def _large_frame(self) -> list[memoryview]:
        if self._filled < self._whole:
            return []
        frame = memoryview(self._buffer)[PREFIX : self._whole]
        if len(self._buffer) <= self._trusted:
            self._spare.append(self._buffer)
        self._buffer = self._shared
        self._filled = 0
        return [frame]

    def _keep_rest(self, pos: int) -> None:
        rest = self._shared[pos : self._filled]
        self._filled = len(rest)
        if len(rest) >= PREFIX:
            whole = PREFIX + frame_size(self._shared, pos, self._max_frame)
            if whole > _SMALL:
                self._whole = whole
                self._buffer = self._allocate(min(whole, self._trusted))
        self._buffer[: len(rest)] = rest

    def _allocate(self, size: int) -> bytearray:
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= size and _is_unused(buffer):
                del self._spare[index]
                return buffer
        return bytearray(size)


def _is_unused(buffer: bytearray) -> bool:
    """Whether nobody has a view of ``buffer``: only then can it be resized."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
