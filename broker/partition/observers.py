"""Who hears what happens to a partition: those who wait for one thing, and those who follow all.

Everything here is called in the event loop, from within the partition's own methods: callbacks
never block, and never add or remove observers before they return.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from qbus.errors import ErrorCode

if TYPE_CHECKING:
    from .partition import Partition


class AckWaiter(Protocol):
    """Waits for the high watermark to pass what it appended."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        """What was registered with ``token`` is acknowledged (NONE), or it never will be."""


class Acknowledgements:
    """The acknowledgements that a partition owes, in the order of the appends."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, AckWaiter, object]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, waiter: AckWaiter, token: object) -> None:
        """Tell ``waiter`` when everything below ``end_offset`` is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():  # time-outs leave in the order they came
            waiting.popleft()
        waiting.append((end_offset, waiter, token))

    def advance(self, offset: int) -> None:
        """Acknowledge everything below ``offset``."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, ErrorCode.NONE)

    def refuse(self, code: ErrorCode) -> None:
        """Answer ``code`` to all who wait."""
        waiting = self._waiting
        while waiting:
            _, waiter, token = waiting.popleft()
            waiter.acknowledged(token, code)


class Watcher(Protocol):
    """A reader that waits for records to become visible."""

    def advanced(self, size: int) -> None:
        """``size`` more bytes can be read; 0: something else changed, such as the leader."""


class ReplicaWatcher(Protocol):
    """A follower on another broker, as its leader's partition sees it."""

    @property
    def asked_at(self) -> float:
        """When it asked last, a monotonic time in seconds."""

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""

    def changed(self, *, at_once: bool) -> None:
        """Something else changed: the leader or the log (at once), or the high watermark."""


class PartitionListener:
    """What a service does as partitions come, go and grow: override what concerns it.

    Delayed records, queues, compaction and tiers hear here of the partitions that they work on.
    :meth:`PartitionEvents.subscribe` calls only the methods that a subclass overrides, so an
    append costs nothing for listeners that do not follow appends.
    """

    def opened(self, partition: "Partition") -> None:
        """The broker holds the partition from now on; it has no role yet."""

    def leading(self, partition: "Partition", leader_epoch: int) -> None:
        """The broker leads the partition since ``leader_epoch``."""

    def stepping_down(self, partition: "Partition", code: ErrorCode) -> None:
        """The broker leads the partition no longer; requests get ``code``."""

    def closed(self, partition: "Partition") -> None:
        """The broker does not hold the partition any more."""

    def appended(self, partition: "Partition", end_offset: int, size: int) -> None:
        """The leader appended ``size`` bytes; the log ends at ``end_offset``."""

    def high_watermark_moved(self, partition: "Partition", offset: int) -> None:
        """Everything below ``offset`` is acknowledged and visible."""


class PartitionEvents:
    """The listeners of all partitions of a broker, by event."""

    __slots__ = ("appended", "closed", "high_watermark_moved", "leading", "opened", "stepping_down")

    def __init__(self) -> None:
        self.opened: list[Callable[[Partition], None]] = []
        self.leading: list[Callable[[Partition, int], None]] = []
        self.stepping_down: list[Callable[[Partition, ErrorCode], None]] = []
        self.closed: list[Callable[[Partition], None]] = []
        self.appended: list[Callable[[Partition, int, int], None]] = []
        self.high_watermark_moved: list[Callable[[Partition, int], None]] = []

    def subscribe(self, listener: PartitionListener) -> None:
        """Have ``listener`` hear of every partition from now on."""
        for event in self.__slots__:
            if getattr(type(listener), event) is not getattr(PartitionListener, event):
                getattr(self, event).append(getattr(listener, event))
