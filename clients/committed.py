"""The committed offsets of groups: committing and fetching them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from uuid import UUID

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

from .errors import TopicDeleted, api_error, check
from .net.cluster import Cluster
from .net.pool import ConnectionGroup
from .net.routing import COORDINATOR_MOVED, retry_at_coordinator
from .types import NO_ID, OffsetAndMetadata, TopicPartition, by_topic, by_topic_and_id


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

    An offset with a topic id goes by it where the broker serves that (Kafka 4.1): it is refused
    with UNKNOWN_TOPIC_ID after its topic was deleted. Retries while no coordinator accepts the
    request, unless ``before_each`` attempt raises. Raises :class:`~qbus.errors.ApiError` when no
    coordinator answered.
    """
    refused: dict[TopicPartition, ApiError] = {}
    for by_id in (True, False):
        some = {key: one for key, one in offsets.items() if (one.topic_id is not None) is by_id}
        if some:
            commit_some = partial(_commit, cluster, group, some, membership, before_each, by_id)
            refused |= await retry_at_coordinator(cluster, group, commit_some)
    return refused


async def _commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: Membership,
    before_each: Callable[[], None] | None,
    by_id: bool,
) -> dict[TopicPartition, ApiError]:
    """Try once to commit ``offsets``, all of which have topic ids, or none; raise to try again."""
    if before_each is not None:
        before_each()
    # Not on the group's connection, where it would wait for the end of a rebalance.
    response: OffsetCommitResponse = await cluster.ask_coordinator(
        group,
        ApiKey.OFFSET_COMMIT,
        commit_request(group, offsets, membership),
        connection_group=ConnectionGroup.MAIN,
        by_id=by_id,
    )
    ids = {topic_id: topic for topic, topic_id in by_topic_and_id(offsets)}
    refused = {
        TopicPartition(name, partition.partition_index): api_error(
            partition.error_code, of=f"{name}-{partition.partition_index}"
        )
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code != ErrorCode.NONE
        for name in [topic.name or ids[UUID(bytes=topic.topic_id)]]
    }
    for error in refused.values():
        if error.code in _NOT_TAKEN:
            raise error
    await explain_unknown(cluster, offsets, refused)
    return refused


async def explain_unknown(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    refused: dict[TopicPartition, ApiError],
) -> None:
    """Have ``refused`` say :class:`TopicDeleted` of offsets that were refused by their topic's id.

    Raises the refusal of a topic that exists: the coordinator does not know of it yet.
    """
    unknown = [key for key, error in refused.items() if error.code is ErrorCode.UNKNOWN_TOPIC_ID]
    gone = await _gone(cluster, {(key.topic, offsets[key].topic_id) for key in unknown})
    for key in unknown:
        if (key.topic, offsets[key].topic_id) not in gone:
            raise refused[key]
        again = " and created again" if key.topic in cluster.metadata.topics else ""
        refused[key] = TopicDeleted(
            f"offset {offsets[key].offset} of {key.topic}-{key.partition} is not committed:"
            f" the topic was deleted{again}",
        )


async def _gone(
    cluster: Cluster, unknown: Collection[tuple[str, UUID | None]]
) -> set[tuple[str, UUID | None]]:
    """Return the topics that were deleted of those that a coordinator did not know by their ids."""
    if not unknown:
        return set()
    await cluster.refresh({topic for topic, _ in unknown})
    known = cluster.metadata.topics
    return {
        (topic, topic_id)
        for topic, topic_id in unknown
        if topic not in known or known[topic].topic_id != topic_id
    }


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
                topic_id=topic_id.bytes,
                partitions=[
                    _to_commit(index, offsets[TopicPartition(topic, index)]) for index in indexes
                ],
            )
            for (topic, topic_id), indexes in by_topic_and_id(offsets).items()
        ],
    )


async def fetch_committed(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    ids: Mapping[str, UUID] | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what ``group`` has committed for ``partitions`` (None: all); others are absent.

    ``ids``: of all topics of ``partitions``, to get no offset of another topic of the same name;
    NO_ID where the broker names none.
    """
    topics, ids = None, ids or {}
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(
                name=topic, topic_id=ids.get(topic, NO_ID).bytes, partition_indexes=indexes
            )
            for topic, indexes in by_topic(partitions).items()
        ]
    names = {topic_id: topic for topic, topic_id in ids.items()}
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=True,  # waits for open transactions (KIP-447)
    )

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        response: OffsetFetchResponse = await cluster.ask_coordinator(
            group,
            ApiKey.OFFSET_FETCH,
            request,
            connection_group=ConnectionGroup.MAIN,
            by_id=bool(names) and NO_ID not in names,
        )
        (found,) = response.groups
        check(found.error_code, of=f"group {group}")
        unknown = {
            (names[topic_id], topic_id)
            for topic in found.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            for topic_id in [UUID(bytes=topic.topic_id)]
        }
        gone = {topic for topic, _ in await _gone(cluster, unknown)}
        committed = {}
        for topic in found.topics:
            name = topic.name or names[UUID(bytes=topic.topic_id)]
            for partition in topic.partitions if name not in gone else ():
                check(partition.error_code, of=f"{name}-{partition.partition_index}")
                if partition.committed_offset >= 0:
                    committed[TopicPartition(name, partition.partition_index)] = OffsetAndMetadata(
                        partition.committed_offset,
                        partition.metadata or "",
                        partition.committed_leader_epoch,
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
