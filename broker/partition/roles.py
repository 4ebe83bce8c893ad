"""The roles of partitions: this broker leads or follows, as the metadata says."""

from collections.abc import Iterable
from typing import Protocol

from qbus.clock import Clock
from qbus.errors import ErrorCode
from qbus.metadata.znodes import NO_LEADER

from ..metadata.image import PartitionInfo, Topic
from .partition import Partition


class Replicator(Protocol):
    """Copies what the leaders of partitions have, as long as this broker follows them."""

    def add(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Fetch a partition from this leader in this epoch, and from no other."""

    def remove(self, partition: Partition) -> None:
        """Stop fetching; a truncation under way goes on, see :meth:`Partition.truncated`."""

    def is_failing(self, partition: Partition) -> bool:
        """Whether a partition follows a leader, and its last fetch failed."""

    async def repair(self, partitions: Iterable[Partition]) -> None:
        """Replace corrupt batches by what other replicas have."""

    async def stop(self) -> None:
        """Copy nothing any more; returns when nothing is under way."""


class Roles:
    """Gives partitions the roles that their states in the store ask for."""

    def __init__(self, node_id: int, replicator: Replicator, clock: Clock) -> None:
        self._node_id = node_id
        self._replicator = replicator
        self._clock = clock

    async def prepare(self, partition: Partition, info: PartitionInfo) -> None:
        """Let what a follower began come to its end, if ``partition`` is to be led here."""
        if info.leader == self._node_id and not partition.is_leader:
            self._replicator.remove(partition)
            await partition.truncated()

    def take(self, partition: Partition, info: PartitionInfo) -> None:
        """Lead or follow, as ``info`` says; call :meth:`prepare` first."""
        log, is_led_here = partition.log, info.leader == self._node_id
        # A disk that failed stays as it is; a log that is corrupt can be fetched anew, or be served
        # as far as it is good.
        is_curable = not is_led_here and log.is_beyond_repair
        if is_led_here and log.can_serve_around_damage and has_only_copy(info, self._node_id):
            log.serve_around_damage()
            is_curable = True
        if partition.error is ErrorCode.KAFKA_STORAGE_ERROR and not is_curable:
            return
        if is_led_here and not log.is_usable:
            partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if is_led_here:
            partition.lead(info, self._clock.monotonic())
            return
        before = (partition.leader_id, partition.leader_epoch)
        partition.follow(info.leader, info.leader_epoch)
        if before == (partition.leader_id, partition.leader_epoch):
            return
        if partition.leader_id == NO_LEADER:
            self._replicator.remove(partition)
        else:
            self._replicator.add(partition, partition.leader_id, partition.leader_epoch)

    def leave(self, partition: Partition, code: ErrorCode) -> None:
        """Neither lead nor follow: requests get ``code``."""
        self._replicator.remove(partition)
        partition.refuse(code)


def has_only_copy(info: PartitionInfo, node_id: int) -> bool:
    """Whether no other replica is known to have all acknowledged records of a partition."""
    return {*info.isr, *info.elr} <= {node_id}


def is_held(topic: Topic, index: int, node_id: int) -> bool:
    """Whether a broker is to hold a partition."""
    return index < len(topic.partitions) and node_id in topic.partitions[index].replicas
