"""Where reading ends: at the end of the log as it was, at an offset, or at a time."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from qbus.clock import SystemClock

if TYPE_CHECKING:
    from qbus.cli.parameters import Position
    from qbus.clients import Consumer
    from qbus.clients.types import TopicPartition
    from qbus.clock import Clock

Offsets = Mapping["TopicPartition", int]


class StopOffsets:
    """The offset of each partition at which reading it ends; none for ``until=None``.

    A time in the past ends at the first record from then on, or else at the end of the log. A
    time to come is waited for, and taken as one in the past once it has come: until then no
    partition has an end.
    """

    def __init__(
        self, consumer: "Consumer", until: "Position | None", clock: "Clock | None" = None
    ) -> None:
        self._consumer = consumer
        self._until = until
        self._clock = clock or SystemClock()
        self._stops: dict[TopicPartition, int] | None = None

    async def find(self, partitions: Collection["TopicPartition"], ends: Offsets) -> None:
        """Find where ``partitions``, whose logs end at ``ends`` now, stop; once it is time to."""
        if self._until is None or not self.are_due:
            return
        match self._until.kind:
            case "offset":
                self._stops = dict.fromkeys(partitions, self._until.value)
            case "time":
                self._stops = dict(await first_from(self._consumer, self._until.value, ends))
            case "earliest" | "latest":
                self._stops = dict(ends)

    @property
    def are_due(self) -> bool:
        """Whether they can be found by now, and are not yet."""
        if self._until is None or self._stops is not None:
            return False
        return self._until.kind != "time" or self._until.value <= self._clock.time_ms()

    @property
    def are_known(self) -> bool:
        """Whether reading ends, and it is known where."""
        return self._stops is not None

    def of(self, partition: "TopicPartition") -> int | None:
        """Where ``partition`` stops. None: nowhere yet. A partition made meanwhile has nothing."""
        return None if self._stops is None else self._stops.get(partition, 0)

    def items(self) -> Collection[tuple["TopicPartition", int]]:
        """The known ones."""
        return (self._stops or {}).items()


async def first_from(consumer: "Consumer", time_ms: int, ends: Offsets) -> Offsets:
    """The first record with a timestamp from ``time_ms`` on, or the end, of each partition."""
    found = await consumer.offsets_for_times(dict.fromkeys(ends, time_ms))
    return {p: ends[p] if at.offset < 0 else at.offset for p, at in found.items()}
