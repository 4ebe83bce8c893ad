"""The invariants that hold at every step, whatever fails."""

from collections.abc import Callable
from typing import Protocol

from qbus.metadata.znodes import PartitionStateNode

from .disk import Disk, Entry


class ViolationError(AssertionError):
    """A promise was broken."""


class Leader(Protocol):
    """A broker that believes that it leads."""

    id: int
    disk: Disk
    leader_epoch: int
    high_watermark: int


class Checks:
    """Records everything that any leader ever returned as committed."""

    def __init__(self, disks: dict[int, Disk], is_counted: Callable[[int], bool]) -> None:
        """``is_counted``: whether a replica in the ISR must have the committed records.

        One that may have lost its memory does not count until it is registered again.
        """
        self.committed: list[Entry] = []
        self.acknowledged: dict[int, int] = {}
        self._disks = disks
        self._is_counted = is_counted
        self._leaders: dict[int, int] = {}

    def leads(self, leader: Leader) -> None:
        """Check that each epoch has one leader."""
        if leader.leader_epoch in self._leaders:
            first = self._leaders[leader.leader_epoch]
            raise ViolationError(f"{first} and {leader.id} lead in epoch {leader.leader_epoch}")
        self._leaders[leader.leader_epoch] = leader.id

    def advanced(self, leader: Leader) -> None:
        """Check that records below a high watermark never change, so none is lost."""
        entries = leader.disk.entries
        if len(entries) < leader.high_watermark:
            raise ViolationError(f"{leader.id} lacks records below its high watermark")
        known = min(leader.high_watermark, len(self.committed))
        if entries[:known] != self.committed[:known]:
            raise ViolationError(f"{leader.id} serves other records than were committed")
        self.committed += entries[known : leader.high_watermark]

    def acknowledges(self, offset: int, value: int) -> None:
        """Record what a producer was told."""
        self.acknowledged[value] = offset

    def strong_isr(self, state: PartitionStateNode, leader: Leader) -> None:
        """Check StrongIsr of Kip320.tla: below the high watermark, the logs of the ISR are equal.

        This concerns only the leader of the current epoch in the store.
        """
        if leader.leader_epoch != state.leader_epoch:
            return
        committed = self.committed[: leader.high_watermark]
        for replica in (*state.isr, *state.elr):
            held = self._disks[replica].entries[: len(committed)]
            if held != committed and self._is_counted(replica):
                raise ViolationError(
                    f"{replica} is in {state} and has not what {leader.id} committed:"
                    f" {len(held)} of {len(committed)}"
                )

    def at_the_end(self, leader: Leader) -> None:
        """Check that every acknowledged record exists at its offset."""
        for value, offset in self.acknowledged.items():
            if leader.high_watermark <= offset or leader.disk.entries[offset].value != value:
                raise ViolationError(f"the acknowledged record {value} at {offset} is lost")
        values = [entry.value for entry in self.committed]
        if len(set(values)) != len(values):
            raise ViolationError("a record was committed twice")
