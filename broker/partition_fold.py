"""What the hidden batches of a partition add up to: its delayed records, and its queues.

Content of a snapshot: as long as there are no queues, that of :mod:`.delay.fold`, which never
begins with a negative number. Else -1 and the size of that (8 bytes each, little-endian, signed),
then that, then the content of :mod:`.queues.fold`.
"""

import struct
from collections.abc import Sequence
from typing import Final, TypeVar

from qbus.records import BatchHeader, Buffer
from qbus.records.control import Announcement, ControlRecord, ControlType

from .delay.fold import DelayFold
from .log.controls import Fold
from .queues.fold import QueueFold

F = TypeVar("F")

_HEAD: Final = struct.Struct("<qq")
_BOTH: Final = -1
_OF_QUEUES: Final = (ControlType.SHARED, ControlType.RESULT)


class PartitionFold:
    """The fold of a partition's log; its parts are ``delays`` and ``queues``."""

    __slots__ = ("delays", "queues")

    def __init__(self) -> None:
        self.delays = DelayFold()
        self.queues = QueueFold()

    def part(self, kind: type[F]) -> F | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        if isinstance(self.delays, kind):
            return self.delays
        if isinstance(self.queues, kind):
            return self.queues
        return self if isinstance(self, kind) else None

    @property
    def needed_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self.delays.needed_from

    @property
    def done_before(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self.queues.done_before

    @property
    def told_from(self) -> int | None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self.queues.told_from

    def delayed(self, header: BatchHeader, batch: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        self.delays.delayed(header, batch)

    def control(self, record: ControlRecord) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        if record.type in _OF_QUEUES:
            self.queues.control(record)
        else:
            self.delays.control(record)

    def delivered(self, announcement: Announcement) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        self.delays.delivered(announcement)

    @property
    def awaits_markers(self) -> bool:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        return self.delays.awaits_markers

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        self.delays.ended(producer_id, is_commit=is_commit)

    def succeed(self, former: Fold) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        self.delays.succeed(former)
        self.queues.succeed(former)

    def encode(self) -> Sequence[Buffer]:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        delays = self.delays.encode()
        if not self.queues.groups:
            return delays
        head = _HEAD.pack(_BOTH, sum(map(len, delays)))
        return [head, *delays, *self.queues.encode()]

    def restore(self, content: Buffer) -> None:
        """See :class:`~qbus.broker.log.controls.Fold`."""
        content = memoryview(content)
        delays, queues = DelayFold(), QueueFold()
        if len(content) < _HEAD.size or _HEAD.unpack_from(content)[0] != _BOTH:
            delays.restore(content)
        else:
            end = _HEAD.size + _HEAD.unpack_from(content)[1]
            if not _HEAD.size <= end <= len(content):
                raise ValueError(f"a snapshot of {len(content)} bytes is cut")
            delays.restore(content[_HEAD.size : end])
            queues.restore(content[end:])
        self.delays, self.queues = delays, queues
