"""What must be true at every step, whatever fails."""

from collections.abc import Callable
from typing import Protocol

from qbus.metadata.znodes import PartitionStateNode

from .disk import Disk, Entry


class ViolationError(AssertionError):
    """A promise was broken."""


class Leader(Protocol):
    """A broker that takes itself for the leader."""

    id: int
    disk: Disk
    leader_epoch: int
    high_watermark: int


class Checks:
    """Remembers all that any leader ever gave out as committed."""

    def __init__(self, disks: dict[int, Disk], is_counted: Callable[[int], bool]) -> None:
        """``is_counted``: whether a replica that is said to be in sync has to be.

        One that may have lost what was in memory does not count until it is registered again.
        """
        self.committed: list[Entry] = []
        self.acknowledged: dict[int, int] = {}
        self._disks = disks
        self._is_counted = is_counted
        self._leaders: dict[int, int] = {}

    def leads(self, leader: Leader) -> None:
        """One leader per epoch, and once."""
        if leader.leader_epoch in self._leaders:
            first = self._leaders[leader.leader_epoch]
            raise ViolationError(f"{first} and {leader.id} lead in epoch {leader.leader_epoch}")
        self._leaders[leader.leader_epoch] = leader.id

    def advanced(self, leader: Leader) -> None:
        """What is below a high watermark never changes: no acknowledged record is lost."""
        entries = leader.disk.entries
        if len(entries) < leader.high_watermark:
            raise ViolationError(f"{leader.id} has not all below its high watermark")
        known = min(leader.high_watermark, len(self.committed))
        if entries[:known] != self.committed[:known]:
            raise ViolationError(f"{leader.id} serves other records than were committed")
        self.committed += entries[known : leader.high_watermark]

    def acknowledges(self, offset: int, value: int) -> None:
        """Remember what a producer was told."""
        self.acknowledged[value] = offset

    def strong_isr(self, state: PartitionStateNode, leader: Leader) -> None:
        """StrongIsr of Kip320.tla: below a leader's high watermark all true members are the same.

        Only for the leader of the store's own epoch: earlier ones are not what the store means.
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
        """Every acknowledged record is there, at its offset."""
        for value, offset in self.acknowledged.items():
            if leader.high_watermark <= offset or leader.disk.entries[offset].value != value:
                raise ViolationError(f"the acknowledged record {value} at {offset} is lost")
        values = [entry.value for entry in self.committed]
        if len(set(values)) != len(values):
            raise ViolationError("a record was committed twice")
