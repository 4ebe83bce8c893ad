"""The committed offsets of groups: committing and fetching them."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

from .errors import api_error, check
from .net.cluster import Cluster
from .net.pool import ConnectionGroup
from .net.routing import COORDINATOR_MOVED, retry_at_coordinator
from .types import OffsetAndMetadata, TopicPartition, by_topic


class Membership(NamedTuple):
    """Who commits: a member of a generation, or by default no member."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NO_MEMBER = Membership()
_NOT_TAKEN = COORDINATOR_MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Errors after which no offset of the request was committed, but a retry may succeed."""


async def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership = NO_MEMBER,
) -> None:
    """Commit ``offsets``; raise :class:`~qbus.errors.ApiError` when one was refused."""
    for error in (await try_commit(cluster, group, offsets, membership)).values():
        raise error


async def try_commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership = NO_MEMBER,
    *,
    before_each: Callable[[], None] | None = None,
) -> dict[TopicPartition, ApiError]:
    """Commit ``offsets``; return the errors of those refused.

    Retries while no coordinator accepts the request, unless ``before_each`` attempt raises. Raises
    :class:`~qbus.errors.ApiError` when no coordinator answered.
    """
    if not offsets:
        return {}
    request = commit_request(group, offsets, membership)

    async def attempt() -> dict[TopicPartition, ApiError]:
        if before_each is not None:
            before_each()
        # Not on the group's connection, where it would wait for the end of a rebalance.
        response: OffsetCommitResponse = await cluster.ask_coordinator(
            group, ApiKey.OFFSET_COMMIT, request, connection_group=ConnectionGroup.MAIN
        )
        refused = {
            TopicPartition(topic.name, partition.partition_index): api_error(
                partition.error_code, of=f"{topic.name}-{partition.partition_index}"
            )
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code != ErrorCode.NONE
        }
        for error in refused.values():
            if error.code in _NOT_TAKEN:
                raise error
        return refused

    return await retry_at_coordinator(cluster, group, attempt)


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership = NO_MEMBER,
) -> OffsetCommitRequest:
    """Return the request that commits ``offsets``."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _to_commit(index, offsets[TopicPartition(topic, index)]) for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )


async def fetch_committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what ``group`` has committed for ``partitions`` (None: all); others are absent."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=True,  # waits for open transactions (KIP-447)
    )

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        response: OffsetFetchResponse = await cluster.ask_coordinator(
            group, ApiKey.OFFSET_FETCH, request, connection_group=ConnectionGroup.MAIN
        )
        (found,) = response.groups
        check(found.error_code, of=f"group {group}")
        committed = {}
        for topic in found.topics:
            for partition in topic.partitions:
                check(partition.error_code, of=f"{topic.name}-{partition.partition_index}")
                if partition.committed_offset >= 0:
                    committed[TopicPartition(topic.name, partition.partition_index)] = (
                        OffsetAndMetadata(
                            partition.committed_offset,
                            partition.metadata or "",
                            partition.committed_leader_epoch,
                        )
                    )
        return committed

    return await retry_at_coordinator(cluster, group, attempt)


def _to_commit(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
