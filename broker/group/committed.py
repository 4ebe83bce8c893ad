"""Committed offsets of groups, wherever they are kept.

A loaded group's offsets are in its nodes of the metadata store, or in the log
(``GroupMetadata.is_in_log``). What a transaction brings is kept where the cluster wants offsets at
that time: as records of the transaction in the log, which its marker ends, or below the group's
node, where the transaction's coordinator ends it by a request.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from qbus.errors import ApiError, ErrorCode

from ..metadata.image import Topic
from .committing import PackedCommit
from .group_metadata import Done, GroupMetadata
from .offset_log import OffsetLog, Verify, Which
from .offset_machine import Committed
from .offsets import Offset, Offsets, PresentOffsets, TopicPartition, committed_for
from .registry import GroupRegistry
from .state import GroupState
from .storage import Storage
from .znodes import ProducerEpoch

_NO_OFFSETS: Final[Mapping[int, Offset]] = {}


class CommittedOffsets:
    """Reads and writes the committed offsets of loaded groups."""

    def __init__(self, registry: GroupRegistry, topics: Mapping[str, Topic]) -> None:
        """``topics``: those that exist now."""
        self._registry = registry
        self._topics = topics

    @property
    def _log(self) -> OffsetLog:
        homes = self._registry.homes
        assert homes is not None, "offsets are in the log, and there is none"
        return homes.log

    @property
    def _is_log_wanted(self) -> bool:
        homes = self._registry.homes
        return homes is not None and homes.storage.current is Storage.LOG

    # Reading

    def known(self, metadata: GroupMetadata) -> Offsets:
        """The offsets of a group, as they are in memory."""
        if metadata.is_in_log:
            return self._log.offsets(metadata.group_id)
        return metadata.znodes.offsets

    def present(self, metadata: GroupMetadata) -> PresentOffsets:
        """The same, without those of deleted topics whose names other topics have now."""
        if metadata.is_in_log:
            return self._log.present(metadata.group_id)
        return PresentOffsets(metadata.znodes.offsets, self._topics, metadata.znodes.topic_ids)

    def known_for(self, metadata: GroupMetadata, topics: Collection[Topic]) -> list[TopicPartition]:
        """Of which partitions of topics there are offsets; not of others of the same names."""
        return committed_for(topics, lambda topic: self.known_of(metadata, topic))

    def known_of(self, metadata: GroupMetadata, topic: str) -> Mapping[int, Offset]:
        """Those of one topic, with what is about to be stored."""
        if metadata.is_in_log:
            return self._log.offsets(metadata.group_id).get(topic, {})
        return metadata.offsets_of(topic)

    def unstable(self, metadata: GroupMetadata) -> frozenset[TopicPartition]:
        """The partitions for which open transactions bring offsets."""
        places = [place for brought in metadata.znodes.pending.values() for place in brought]
        if self._registry.homes is None or not self._registry.homes.storage.is_by_log:
            return frozenset(places)
        return self._log.unstable(metadata.group_id).union(places)

    async def read(self, metadata: GroupMetadata) -> Committed:
        """The offsets of a group, all of which are stored for good, without stale ones.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        _check(await self._registry.confirm(metadata))
        if not metadata.is_in_log:
            return Committed(self.present(metadata), self.unstable(metadata))
        offsets, unstable = await self._log.read(metadata.group_id)
        places = [place for brought in metadata.znodes.pending.values() for place in brought]
        return Committed(offsets, unstable.union(places))

    # Writing

    async def save(
        self, metadata: GroupMetadata, offsets: Mapping[TopicPartition, Offset | None]
    ) -> ErrorCode:
        """Store offsets, or delete them (None); return the error, if any."""
        if metadata.is_in_log:
            error = await self._log.save(metadata.group_id, offsets)
            if error or not metadata.has_pending(offsets):
                return error
            return await self._registry.supersede(metadata, offsets.keys())
        return await self._registry.save_offsets(metadata, offsets)

    async def forget(self, metadata: GroupMetadata, topics: Collection[Topic]) -> ErrorCode:
        """Delete the offsets of deleted topics; return the error, if any.

        What an open transaction is about to replace is left (:meth:`known_for` tells of it): the
        deletion would undo what it brings, which may be of another topic of the same name.
        """

        def which(offsets: Offsets) -> list[TopicPartition]:
            return committed_for(topics, lambda topic: offsets.get(topic, _NO_OFFSETS))

        return await self._forget(metadata, {topic.name for topic in topics}, which)

    async def discard(
        self, metadata: GroupMetadata, found: Mapping[TopicPartition, Offset]
    ) -> ErrorCode:
        """Delete offsets as they were found, not others that have come; return the error, if any.

        What an open transaction is about to replace is left.
        """

        def which(offsets: Offsets) -> list[TopicPartition]:
            return [
                (topic, partition)
                for (topic, partition), offset in found.items()
                if offsets.get(topic, _NO_OFFSETS).get(partition) == offset
            ]

        return await self._forget(metadata, {topic for topic, _ in found}, which)

    async def _forget(
        self, metadata: GroupMetadata, names: Collection[str], which: Which
    ) -> ErrorCode:
        """Delete offsets of topics with these names, unless open transactions bring others.

        ``which`` is asked in the same step: a moment later they may be of another topic.
        """
        spared = {place for brought in metadata.pending.values() for place in brought}
        if metadata.is_in_log:
            try:
                await self._log.forget(metadata.group_id, which, spared)
            except ApiError as error:
                return error.code
            return ErrorCode.NONE
        found = which({name: metadata.offsets_of(name) for name in names})
        doomed = dict.fromkeys(place for place in found if place not in spared)
        if not doomed:
            return ErrorCode.NONE
        return await self._registry.save_offsets(metadata, doomed)

    def begin_save(self, metadata: GroupMetadata, packed: PackedCommit, done: Done) -> bool:
        """Store offsets of a group for which no transaction has brought any, without waiting.

        ``done`` is called later with the error, if any. False: they cannot be stored now.
        """
        if metadata.is_in_log:
            return self._log.begin_save(packed, done)
        self._registry.begin_save(metadata, dict(packed.offsets()), done)
        return True

    async def remove(self, metadata: GroupMetadata) -> ErrorCode:
        """Delete a group with its offsets, and with what transactions would bring it."""
        if metadata.is_in_log:
            group_id = metadata.group_id
            places = {*_places(self.known(metadata)), *self._log.unstable(group_id)}
            if error := await self._log.save(group_id, dict.fromkeys(places)):
                return error
            if metadata.group.state is GroupState.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if metadata.group.state is not GroupState.EMPTY:  # somebody has joined meanwhile
                return ErrorCode.NON_EMPTY_GROUP
        return await self._registry.remove(metadata)

    # Transactions

    async def save_in_transaction(
        self,
        metadata: GroupMetadata,
        offsets: Mapping[TopicPartition, Offset],
        producer_id: int,
        epoch: int,
        verify: Verify,
        *,
        has_new_epoch: bool,
    ) -> None:
        """Store offsets that count when a producer's transaction is committed.

        ``has_new_epoch``: see :meth:`GroupCoordinator.commit_in_transaction`.

        Raises:
            ApiError: what ``verify`` answers; INVALID_TXN_STATE, the transaction has ended
                meanwhile; INVALID_PRODUCER_EPOCH; or a retriable one.
        """
        if self._is_log_wanted:
            await self._log.save_in_transaction(
                metadata.group_id,
                offsets,
                producer_id,
                epoch,
                verify,
                self._check_log_is_wanted,
                has_new_epoch=has_new_epoch,
            )
            return
        producer = (producer_id, epoch)
        if any(known == producer_id and at > epoch for known, at in metadata.pending):
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if producer not in metadata.pending:
            await self._verify(metadata, producer, verify)
        _check(await self._registry.save_pending(metadata, producer, offsets))

    @staticmethod
    async def _verify(metadata: GroupMetadata, producer: ProducerEpoch, verify: Verify) -> None:
        token = metadata.begin_verification(producer)
        try:
            error = await verify(None)
        finally:
            is_current = metadata.end_verification(producer, token)
        if error:
            raise ApiError(error)
        if metadata.is_abandoned:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not is_current:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended")

    def _check_log_is_wanted(self) -> None:
        if not self._is_log_wanted:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "offsets move to another place")

    async def end_transaction(
        self, metadata: GroupMetadata, producer_id: int, epoch: int, *, committed: bool
    ) -> None:
        """Have what a producer's transactions up to an epoch bring count, or drop it.

        Raises:
            ApiError: retriable, here or at another broker.
        """
        metadata.end_verifications(producer_id, epoch)
        ended = [one for one in metadata.pending if one[0] == producer_id and one[1] <= epoch]
        if not ended:
            _check(await self._registry.confirm(metadata))
            return
        offsets: dict[TopicPartition, Offset | None] = {}
        if committed:
            for producer in sorted(ended):
                offsets |= metadata.pending[producer]
        if metadata.is_in_log:
            _check(await self._log.save(metadata.group_id, offsets))
            offsets = {}
        _check(await self._registry.end_pending(metadata, ended, offsets))


def _places(offsets: Offsets) -> Iterator[TopicPartition]:
    return ((topic, partition) for topic, some in offsets.items() for partition in some)


def _check(error: ErrorCode) -> None:
    if error:
        raise ApiError(error)
