"""What happens to partitions, for services that work on them.

Delayed records, queues, compaction and tiers hear here of the partitions that they work on. This
module does not know what a partition is, so that a partition may know its events.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from qbus.errors import ErrorCode

P = TypeVar("P")
"""A partition, :class:`~qbus.broker.partition.partition.Partition`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionListener(Generic[P]):
    """What a service does as partitions come, go and grow: override what concerns it.

    :meth:`PartitionEvents.subscribe` calls only the methods that a subclass overrides, so an
    append costs nothing for listeners that do not follow appends.
    """

    def opened(self, partition: P) -> None:
        """The broker holds the partition from now on; it has no role yet."""

    def leading(self, partition: P, leader_epoch: int) -> None:
        """The broker leads the partition since ``leader_epoch``.

        Comes again, without ``stepping_down``, when the broker is elected again in a later epoch.
        """

    def stepping_down(self, partition: P, code: ErrorCode) -> None:
        """The broker stops leading: waiting and later requests get ``code``.

        ``is_leader`` is still true during the call. A failed disk causes it without ``closed``.
        A suspected partition (see :mod:`.leadership_lease`) causes no event.
        """

    def closed(self, partition: P) -> None:
        """The broker does not hold the partition any more."""

    def appended(self, partition: P, end_offset: int, size: int) -> None:
        """The leader appended ``size`` bytes; the log ends at ``end_offset``."""

    def high_watermark_moved(self, partition: P, offset: int) -> None:
        """Everything below ``offset`` is acknowledged and visible."""

    def transaction_ended(
        self, partition: P, producer_id: int, epoch: int, committed: bool
    ) -> None:
        """The leader appended the marker that ends a producer's transaction."""


EVENTS: Final = (
    "appended",
    "closed",
    "high_watermark_moved",
    "leading",
    "opened",
    "stepping_down",
    "transaction_ended",
)


class PartitionEvents(Generic[P]):
    """The listeners of all partitions of a broker, by event."""

    def __init__(self) -> None:
        self.opened: list[Callable[[P], None]] = []
        self.leading: list[Callable[[P, int], None]] = []
        self.stepping_down: list[Callable[[P, ErrorCode], None]] = []
        self.closed: list[Callable[[P], None]] = []
        self.appended: list[Callable[[P, int, int], None]] = []
        self.high_watermark_moved: list[Callable[[P, int], None]] = []
        self.transaction_ended: list[Callable[[P, int, int, bool], None]] = []

    def subscribe(self, listener: PartitionListener[P]) -> None:
        """Have ``listener`` hear of every partition from now on."""
        for event in EVENTS:
            if getattr(type(listener), event) is not getattr(PartitionListener, event):
                getattr(self, event).append(getattr(listener, event))
