"""Where batches begin that a read, or a flush, came by: the next read mostly goes on there."""

_KNOWN = 64


class KnownPlaces:
    """Positions in a segment's file, by the offset that a batch begins, or will begin, with."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def get(self, offset: int) -> int | None:
        """The position of the batch that begins with ``offset``, if it is known."""
        return self._places.get(offset)

    def add(self, offset: int, position: int) -> None:
        """A batch begins, or will begin, with ``offset`` at ``position``."""
        if len(self._places) >= _KNOWN:
            self._places = {}
        self._places[offset] = position

    def clear(self) -> None:
        """Forget them: batches were taken away."""
        self._places = {}
