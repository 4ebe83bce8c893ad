"""The lines of a rotated log that arrived, compared with those that were written."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .arrivals import Arrivals
from .writers import Writer


class Shipped(Arrivals):
    """Everything that arrives in a topic; it tells the writer how far that came."""

    def __init__(self, bootstrap: str, topic: str, writer: Writer) -> None:
        super().__init__(bootstrap, topic)
        self._writer = writer

    def more(self, count: int) -> None:
        """Read until so many more different values have arrived."""
        wanted = len(self.seen) + count
        self.until(lambda: len(self.seen) >= wanted)

    def _read(self, timeout: float) -> list[bytes]:
        found = super()._read(timeout)
        latest = max((int(value.split(b" ", 1)[0]) for value in found), default=-1)
        self._writer.arrived = max(self._writer.arrived, latest)
        return found


def check(arrived: Sequence[bytes], written: Mapping[int, Sequence[bytes]]) -> int:
    """Fail unless all lines arrived unchanged, those of each file in order.

    Lines may be repeated from any place on, and none may be passed over. Return the number of
    repeated bytes.
    """
    by_file: dict[int, list[bytes]] = defaultdict(list)
    for value in arrived:
        by_file[int(value.split(b" ", 1)[0])].append(value)
    assert by_file.keys() <= written.keys()
    repeated = 0
    for generation, lines in written.items():
        reached = 0
        previous = -1
        for value in by_file[generation]:
            number = int(value.split(b" ", 2)[1])
            assert value == lines[number], "a line is not as it was written"
            assert number <= reached, f"file {generation}: line {reached} is passed over"
            if number < reached:
                repeated += len(value) + 1
                assert number == previous + 1 or number < previous + 1, "repeated, but not in order"
            previous = number
            reached = max(reached, number + 1)
        assert reached == len(lines), f"file {generation}: {reached} of {len(lines)} lines came"
    return repeated
