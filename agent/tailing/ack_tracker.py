"""The chunks of a file in flight, and up to where all of them are acknowledged. Pure."""

Reached = tuple[int, tuple[int, int]]
"""An offset, and the tail (length and CRC-32) before it."""


class AckTracker:
    """Chunks in their order; they may be acknowledged in another one."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[tuple[Reached, list[bool]]] = []  # a deque takes ten times the memory

    def __bool__(self) -> bool:
        return bool(self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, end: int, tail: tuple[int, int]) -> None:
        """Add the next chunk in flight, which ends at ``end``."""
        self._pending.append(((end, tail), [False]))

    def acknowledge(self, end: int) -> Reached | None:
        """Acknowledge the chunk that ends at ``end``; return the new end of acknowledged data."""
        for (chunk_end, _), is_done in self._pending:
            if chunk_end == end:
                is_done[0] = True
                break
        reached = None
        while self._pending and self._pending[0][1][0]:
            reached, _ = self._pending.pop(0)
        return reached
