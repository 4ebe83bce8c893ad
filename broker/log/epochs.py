"""Which leader epoch wrote which offsets (KIP-101): what followers truncate by.

File format (Kafka's ``leader-epoch-checkpoint``): text, a line with the version 0, a line with the
number of entries, then one line for each: epoch, space, first offset written in that epoch.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that belongs to it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; both -1 when unknown."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """The epochs of one log, oldest first.

    ``dirty`` says that the checkpoint is behind; ``saved_crc`` is its CRC-32C, 0 without one.
    """

    __slots__ = ("_entries", "dirty", "saved_crc")

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self._entries = entries or []
        self.dirty = False
        self.saved_crc = 0

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` begins at ``start_offset``: where the log ended before its first record.

        A gap before that belongs to it: the epoch before has nothing there. Known epochs keep their
        start. Entries that a newer epoch leaves without records go.
        """
        if epoch <= self.latest_epoch:
            return
        kept = [entry for entry in self._entries if entry.start_offset < start_offset]
        self._entries = [*kept, EpochStart(epoch, start_offset)]
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ended, or the nearest older one that has records (KIP-320)."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or epoch > self.latest_epoch:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        end = entries[above].start_offset
        return EpochEnd(entries[above - 1].epoch if above else epoch, end)

    def end_of(self, epoch: int, log_end_offset: int, leader_epoch: int) -> EpochEnd:
        """The same for a log whose epochs up to ``leader_epoch`` are known, with records or not."""
        latest = self.latest_epoch
        if latest < epoch <= leader_epoch:
            has_none_below = epoch == leader_epoch or latest < 0
            return EpochEnd(epoch if has_none_below else latest, log_end_offset)
        return self.end_offset_for(epoch, log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch that ``offset`` belongs to, -1 when no entry says."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[above - 1].epoch if above else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``: forget epochs that begin there or later."""
        self._replace([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at ``start_offset``: forget epochs that ended before it."""
        above = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if above:
            first = EpochStart(self._entries[above - 1].epoch, start_offset)
            self._replace([first, *self._entries[above:]])

    def clear(self) -> None:
        """The log has nothing any more."""
        self._replace([])

    def _replace(self, entries: list[EpochStart]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.dirty = True
