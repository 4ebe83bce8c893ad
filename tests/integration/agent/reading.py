"""What arrived, compared with what was written."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from qbus.aio import Consumer

from .writers import Writer

_PATIENCE = 60.0


class Arrivals:
    """Everything that arrives in a topic."""

    def __init__(self, consumer: Consumer, writer: Writer) -> None:
        self._consumer = consumer
        self._writer = writer
        self.values: list[bytes] = []
        self.seen: set[bytes] = set()

    @classmethod
    async def of(cls, consumer: Consumer, topic: str, writer: Writer) -> "Arrivals":
        """Read a topic of three partitions from its start, and tell the writer how far it came."""
        consumer.assign((topic, index, 0) for index in range(3))
        return cls(consumer, writer)

    async def until(self, count: int) -> None:
        """Read until so many different values have arrived."""
        async with asyncio.timeout(_PATIENCE):
            while len(self.seen) < count:
                await self._read()

    async def have(self, values: Iterable[bytes]) -> None:
        """Read until those have arrived."""
        missing = set(values) - self.seen
        async with asyncio.timeout(_PATIENCE):
            while missing:
                await self._read()
                missing -= self.seen

    async def rest(self) -> None:
        """Read what else there is now."""
        ends = await self._consumer.end_offsets(self._consumer.assignment)
        async with asyncio.timeout(_PATIENCE):
            while len(self.values) < sum(ends.values()):
                await self._read()

    async def _read(self) -> None:
        for part in await self._consumer.poll(0.2):
            found = [record.value or b"" for record in part]
            self.values += found
            self.seen.update(found)
            latest = max(int(value.split(b" ", 1)[0]) for value in found)
            self._writer.arrived = max(self._writer.arrived, latest)


def check(arrived: Sequence[bytes], written: Mapping[int, Sequence[bytes]]) -> int:
    """Fail unless all lines arrived, as they are, each file's in order; the bytes that came again.

    Who ships a file again begins somewhere, and goes on from there: what came before may be
    repeated, nothing may be passed over.
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
