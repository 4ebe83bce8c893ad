"""A replica's log: what is written, what is stable, and what a power cut leaves."""

from random import Random
from typing import NamedTuple

from qbus.broker.log import LeaderEpochCache


class Entry(NamedTuple):
    """A record, and the epoch of the leader that wrote it."""

    epoch: int
    value: int


class Disk:
    """Entries by offset; those below ``stable`` survive a power cut."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.stable = 0
        self.epochs = LeaderEpochCache()

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> None:
        self.epochs.assign(entry.epoch, self.end)
        self.entries.append(entry)

    def truncate(self, end: int) -> None:
        del self.entries[end:]
        self.stable = min(self.stable, end)
        self.epochs.truncate_from_end(end)

    def power_cut(self, random: Random) -> None:
        """Lose some of what is not stable."""
        self.truncate(random.randint(self.stable, self.end))
