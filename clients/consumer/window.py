"""How much to ask of a broker at a time: little to have it in the cache, much on a long way."""

LEAST = 4 * 1024 * 1024
"""Bytes. What is read soon after it came is read from the processor's cache."""
_LONG = 0.02
"""Seconds that an answer of :data:`LEAST` takes only on a long or narrow way."""


class Window:
    """The bytes to ask one broker for, at most.

    Twice as many once the reader had to wait for a full answer that was long on its way; fewer, bit
    by bit, while the reader need not wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.nbytes = min(LEAST, most)

    def answered(self, nbytes: int, seconds: float, *, is_awaited: bool) -> None:
        """An answer of ``nbytes`` came, ``seconds`` after it was asked for."""
        if not is_awaited:
            self.nbytes = max(self.nbytes - self.nbytes // 8, min(LEAST, self._most))
        elif seconds >= _LONG and nbytes >= self.nbytes // 2:
            self.nbytes = min(2 * nbytes, self._most)
