"""A partition that is led here, as its queues see it."""

import asyncio
from typing import Protocol

from qbus.clock import Clock

from ..partition.partition import Partition
from .batches import LogBatches
from .dead_lettering import DeadLetterTopics
from .fold import GroupProgress
from .journal import Journal
from .settings import GroupSettings


class WaitsForRecords(Protocol):
    """A queue, as what tells it of new records sees it."""

    @property
    def settings(self) -> GroupSettings:
        """How its group takes records."""

    def advanced(self) -> bool:
        """Records may have become visible; whether anybody still waits for more."""


class LedPartition(Protocol):
    """What a queue needs of its partition, which is led here."""

    @property
    def partition(self) -> Partition:
        """The partition."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def journal(self) -> Journal:
        """Where its queues store what they do."""

    @property
    def batches(self) -> LogBatches:
        """Its batches."""

    @property
    def loading(self) -> asyncio.Lock:
        """Held by who reads batches from the disk."""

    @property
    def dead_letters(self) -> DeadLetterTopics:
        """Stores what is given up."""

    def progress(self, group: str) -> GroupProgress | None:
        """What a group has done, if the partition knows it."""

    async def find_start(self, group: str, settings: GroupSettings) -> None:
        """Have a group that is new begin where its settings say. Raises ApiError."""

    def watch(self, queue: WaitsForRecords) -> None:
        """Call :meth:`WaitsForRecords.advanced` as records become visible, until that is false."""
