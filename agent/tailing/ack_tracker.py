"""Parts of a file on their way, and up to where all of them have arrived. Pure."""

Reached = tuple[int, tuple[int, int]]
"""An offset, and the tail before it."""


class AckTracker:
    """Parts in their order; they may arrive in another."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[tuple[Reached, list[bool]]] = []  # a deque takes ten times the memory

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, end: int, tail: tuple[int, int]) -> None:
        """One more is on its way, which ends there."""
        self._spans.append(((end, tail), [False]))

    def acknowledge(self, end: int) -> Reached | None:
        """The one that ends there has arrived; up to where all have, if that is news."""
        for (its_end, _), is_done in self._spans:
            if its_end == end:
                is_done[0] = True
                break
        reached = None
        while self._spans and self._spans[0][1][0]:
            reached, _ = self._spans.pop(0)
        return reached
