"""Committed offsets in ``__consumer_offsets``: which groups belong here, and requests to the log.

A group's coordinator is the leader of the partition that the group's id is hashed to, as in Kafka.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.names import OFFSETS_TOPIC

from ..internal_logs import InternalLog, InternalTopic, Outcome, Producer, suitable
from ..metadata.image import BrokerInfo, Topic
from ..partition.partition import Partition
from .committing import PackedCommit, Saving
from .group_metadata import Done
from .offset_machine import NOTHING_COMMITTED, Committed, OffsetsMachine, change, commit, read
from .offsets import Offset, Offsets, PresentOffsets, TopicPartition

_log = logging.getLogger(__name__)

_NO_TOPICS: Final[Mapping[str, Topic]] = {}

Which = Callable[[Offsets], Collection[TopicPartition]]
"""Finds among a group's offsets those that are to be deleted."""

Verify = Callable[[int | None], Awaitable[ErrorCode]]
"""Asks a transaction's coordinator whether offsets belong to the transaction, or adds them to it.

It is given the partition of ``__consumer_offsets``, or None for the group itself.
"""


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    """How ``__consumer_offsets`` is to be made."""
    return suitable(
        config,
        OFFSETS_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        min_isr=config.offsets_topic_min_isr,
        segment_bytes=config.offsets_topic_segment_bytes,
    )


class OffsetLog:
    """The offsets in the partitions of ``__consumer_offsets`` that this broker leads."""

    def __init__(self, log: InternalLog[OffsetsMachine], topics: Mapping[str, Topic]) -> None:
        """``topics``: those that exist now."""
        self.internal_log = self._log = log
        self._topics = topics

    async def coordinator(self, group_id: str) -> BrokerInfo | None:
        """The broker that leads a group's partition, or None while there is none.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, the topic cannot be made.
        """
        return await self._log.coordinator(group_id)

    def known_coordinator(self, group_id: str) -> BrokerInfo | None:
        """The same, without making the topic."""
        return self._log.leader(self._log.partition_for(group_id))

    def is_ours(self, group_id: str) -> bool:
        """Whether the group's partition is led here, and loaded."""
        return self.refusal(group_id) is ErrorCode.NONE

    def refusal(self, group_id: str) -> ErrorCode:
        """Why a group does not belong here; NONE: it does."""
        try:
            self._log.shard(group_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def partition_for(self, group_id: str) -> int:
        """The index of the partition that has a group's offsets."""
        return self._log.partition_for(group_id)

    @property
    def count(self) -> int:
        """Number of partitions; 0 if the topic does not exist."""
        topic = self._topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def machines(self) -> dict[int, OffsetsMachine]:
        """The loaded partitions, by index."""
        return {shard.partition.index: shard.machine for shard in self._log.shards()}

    def group_ids(self) -> list[str]:
        """The groups that have offsets in loaded partitions."""
        return [name for machine in self._log.machines() for name in machine.group_ids()]

    @property
    def transactions(self) -> int:
        """Number of open transactions that bring offsets, over the loaded partitions."""
        return sum(machine.transactions for machine in self._log.machines())

    def has(self, group_id: str) -> bool:
        """Whether a group has offsets here, or gets some from open transactions."""
        machine = self._machine(group_id)
        return machine is not None and machine.has(group_id)

    def offsets(self, group_id: str) -> Offsets:
        """The offsets of a group as they are in memory, ahead of what is acknowledged."""
        machine = self._machine(group_id)
        return NOTHING_COMMITTED.offsets if machine is None else machine.offsets(group_id)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions for which open transactions bring offsets."""
        machine = self._machine(group_id)
        return NOTHING_COMMITTED.unstable if machine is None else machine.unstable(group_id)

    def _machine(self, group_id: str) -> OffsetsMachine | None:
        try:
            return self._log.shard(group_id).machine
        except ApiError:
            return None

    def present(self, group_id: str) -> PresentOffsets:
        """The same without stale ones."""
        machine = self._machine(group_id)
        if machine is None:
            return PresentOffsets(NOTHING_COMMITTED.offsets, self._topics, {})
        return machine.present(group_id, self._topics)

    async def read(self, group_id: str, *, has_stale: bool = False) -> Committed:
        """Read the offsets of a group; everything that is returned is acknowledged.

        ``has_stale``: also stale ones, see :class:`.offsets.PresentOffsets`.

        Look at them before the next ``await``.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        shard = self._log.shard(group_id)
        partition = shard.partition
        topics = _NO_TOPICS if has_stale else self._topics
        if not partition.error and partition.high_watermark >= partition.log.log_end_offset:
            machine = shard.machine  # it is never ahead of the log
            return Committed(machine.present(group_id, topics), machine.unstable(group_id))
        return await self._log.ask(group_id, lambda machine, _: read(machine, group_id, topics))

    async def save(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset | None]
    ) -> ErrorCode:
        """Store offsets, or delete them (None); return the error, if any."""
        if not offsets:
            return ErrorCode.NONE
        try:
            await self._log.submit(group_id, partial(_change, group_id, offsets, None))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def forget(
        self, group_id: str, which: Which, spared: Collection[TopicPartition] = ()
    ) -> None:
        """Delete offsets of a group, but no ``spared`` ones, nor where open transactions bring one.

        The deletion would count instead of what they bring, which may be of another topic: as
        compaction leaves of each partition the last record alone.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        await self._log.ask(group_id, partial(_forget, group_id, which, spared))

    def begin_save(self, packed: PackedCommit, done: Done) -> bool:
        """Store what a group commits; ``done`` is called later with the error, if any.

        False: nothing is stored, for the group does not belong here.
        """
        try:
            shard = self._log.shard(packed.group_id)
        except ApiError:
            return False
        shard.put(partial(commit, packed), Saving(done))
        return True

    async def save_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset | None],
        producer_id: int,
        epoch: int,
        verify: Verify,
        check_storage: Callable[[], None],
        *,
        has_new_epoch: bool,
    ) -> None:
        """Store offsets that count when a producer's transaction is committed.

        ``check_storage`` raises ApiError when offsets are not to be stored here any more.
        ``has_new_epoch``: the producer gets a new epoch for each transaction. It may begin the next
        one while this partition's marker of the one before, of the same epoch, is on its way.

        Raises:
            ApiError: what ``verify`` answers, or INVALID_TXN_STATE: the transaction has ended
                meanwhile; INVALID_PRODUCER_EPOCH; or a retriable one.
        """
        shard = self._log.shard(group_id)
        verification = shard.partition.begin_verification(
            producer_id, epoch, 0, begins_with_zero=has_new_epoch
        )
        if verification is not None:
            code = await verify(shard.partition.index)
            if code:
                raise ApiError(code)

        def check(partition: Partition) -> None:
            check_storage()
            partition.check_transaction(producer_id, epoch, verification)

        operation = partial(_change, group_id, offsets, (producer_id, epoch))
        await self._log.ask(group_id, operation, check=check)


def _change(
    group_id: str,
    offsets: Mapping[TopicPartition, Offset | None],
    producer: Producer | None,
    machine: OffsetsMachine,
    now_ms: int,
) -> Outcome[None]:
    return change(machine, now_ms, group_id, offsets, producer)


def _forget(
    group_id: str,
    which: Which,
    spared: Collection[TopicPartition],
    machine: OffsetsMachine,
    now_ms: int,
) -> Outcome[None]:
    kept = machine.unstable(group_id).union(spared)
    doomed = [place for place in which(machine.offsets(group_id)) if place not in kept]
    return change(machine, now_ms, group_id, dict.fromkeys(doomed))
