"""How far groups have come, and letting them go on from somewhere else."""

from collections.abc import Iterable, Mapping

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from qbus.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

from ..committed import fetch_committed
from ..errors import PartialFailure, api_error, check
from ..net.retry import Outcomes
from ..offsets import list_offsets
from ..types import (
    EARLIEST,
    LATEST,
    GroupOffset,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    by_topic,
)
from .base import AdminBase

_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_UNKNOWN = OffsetAndTimestamp(-1, -1)


class GroupOffsets(AdminBase):
    """The part of the admin client that is about the offsets of groups."""

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed for ``partitions`` (None: for all); the others are absent."""
        return await fetch_committed(self._cluster, group, partitions)

    async def group_offsets(self, group: str) -> list[GroupOffset]:
        """What a group has committed, with its lag, by topic and partition."""
        committed = await self.committed_offsets(group)
        starts = await self._ends(committed, EARLIEST)
        ends = await self._ends(committed, LATEST)
        return [
            GroupOffset(
                topic=partition.topic,
                partition=partition.partition,
                committed_offset=offset.offset,
                metadata=offset.metadata,
                start_offset=starts.get(partition, _UNKNOWN).offset,
                end_offset=ends.get(partition, _UNKNOWN).offset,
            )
            for partition, offset in sorted(committed.items())
        ]

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Commit exactly ``offsets`` for a group without members.

        UNKNOWN_MEMBER_ID when it has some: they would go on as if nothing had happened.
        """

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            _to_commit(index, offsets[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(wanted).items()
                ],
            )
            response: OffsetCommitResponse = await self._cluster.ask_coordinator(
                group, ApiKey.OFFSET_COMMIT, request
            )
            return _outcomes(response)

        await self._by_coordinator(group, offsets, ask, final=_MISSING)

    async def reset_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        time: int = EARLIEST,
    ) -> dict[TopicPartition, int]:
        """Let a group without members go on at another time; the offsets that it goes on at.

        partitions: by default all for which it has committed an offset.
        time: EARLIEST, LATEST, or milliseconds since the Unix epoch: the first record of then or
            later, or where the next one will be when there is none.
        """
        if partitions is None:
            partitions = await self.committed_offsets(group)
        wanted = list(partitions)
        found = await list_offsets(self._cluster, dict.fromkeys(wanted, time))
        nothing_so_late = [partition for partition in wanted if found[partition].offset < 0]
        found |= await list_offsets(self._cluster, dict.fromkeys(nothing_so_late, LATEST))
        offsets = {partition: found[partition].offset for partition in wanted}
        await self.alter_group_offsets(group, offsets)
        return offsets

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for partitions of topics that it does not read."""

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in part],
                    )
                    for topic, part in by_topic(wanted).items()
                ],
            )
            response: OffsetDeleteResponse = await self._cluster.ask_coordinator(
                group, ApiKey.OFFSET_DELETE, request
            )
            check(response.error_code, of=f"group {group}")
            return _outcomes(response)

        await self._by_coordinator(group, partitions, ask, final=_MISSING)

    async def _ends(
        self, partitions: Iterable[TopicPartition], time: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Where partitions begin or end; those of which nobody can tell are absent."""
        wanted = dict.fromkeys(partitions, time)
        try:
            return await list_offsets(self._cluster, wanted)
        except PartialFailure as error:
            if error.results or all(map(_is_gone, error.errors.values())):
                return dict(error.results)
            raise
        except ApiError as error:
            if _is_gone(error):
                return {}
            raise


def _is_gone(error: ApiError) -> bool:
    return error.code in _MISSING


def _to_commit(index: int, offset: int | OffsetAndMetadata) -> OffsetCommitRequestPartition:
    if isinstance(offset, int):
        offset = OffsetAndMetadata(offset)
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _outcomes(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> Outcomes[TopicPartition, None]:
    return {
        TopicPartition(topic.name, partition.partition_index): api_error(
            partition.error_code, of=f"{topic.name}-{partition.partition_index}"
        )
        if partition.error_code
        else None
        for topic in response.topics
        for partition in topic.partitions
    }
