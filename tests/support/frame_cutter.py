"""Finds places for cuts in the middle of length-prefixed frames."""


class FrameCutter:
    """Follows a stream in pieces, in whatever way they are cut."""

    def __init__(self) -> None:
        self._prefix = b""
        self._left = 0

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._prefix) or self._left > 0

    def advance(self, data: bytes, limit: int | None) -> int:
        """The number of bytes of ``data`` before a cut that is due after ``limit`` bytes.

        A cut that would fall between two frames comes one byte later.
        """
        pos = 0
        while pos < len(data):
            if limit is not None and pos >= limit and self.is_inside:
                break
            pos += self._step(data, pos, limit)
        return pos

    def _step(self, data: bytes, pos: int, limit: int | None) -> int:
        """Go on by one byte of a length, or by as much of a frame as there is."""
        if not self._left:
            self._prefix += data[pos : pos + 1]
            if len(self._prefix) == 4:
                self._left = int.from_bytes(self._prefix, "big")
                self._prefix = b""
            return 1
        count = min(self._left, len(data) - pos)
        if limit is not None and pos < limit:
            count = min(count, limit - pos)
        self._left -= count
        return count
