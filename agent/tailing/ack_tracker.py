"""The chunks of a file in flight, and up to where all of them are acknowledged. Pure."""

Reached = tuple[int, tuple[int, int]]
"""An offset, and the tail (length and CRC-32) before it."""


class _InFlight:
    """A chunk: where it ends, and since when its first byte has been waiting."""

    __slots__ = ("end", "is_done", "since", "tail")

    def __init__(self, end: int, tail: tuple[int, int], since: float) -> None:
        self.end = end
        self.tail = tail
        self.since = since
        self.is_done = False


class AckTracker:
    """Chunks in their order; they may be acknowledged in another one."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[_InFlight] = []  # a deque takes ten times the memory

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def since(self) -> float | None:
        """Since when the oldest chunk has been waiting; None: all are acknowledged."""
        return self._pending[0].since if self._pending else None

    def add(self, end: int, tail: tuple[int, int], since: float = 0.0) -> None:
        """Add the next chunk in flight, which ends at ``end``."""
        self._pending.append(_InFlight(end, tail, since))

    def acknowledge(self, end: int) -> Reached | None:
        """Acknowledge the chunk that ends at ``end``; return the new end of acknowledged data."""
        pending = self._pending
        for chunk in pending:
            if chunk.end == end:
                chunk.is_done = True
                break
        last = None
        while pending and pending[0].is_done:
            last = pending.pop(0)
        return None if last is None else (last.end, last.tail)
