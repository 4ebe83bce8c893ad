"""How far groups have come."""

from collections.abc import Iterable, Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

from ..cluster import Cluster
from ..committed import commit, fetch_committed
from ..coordination import asking_coordinator
from ..errors import check
from ..grouping import by_topic
from ..offsets import list_offsets
from ..types import EARLIEST, LATEST, GroupOffset, OffsetAndMetadata, TopicPartition


async def describe(cluster: Cluster, group: str) -> list[GroupOffset]:
    """What a group has committed, with its lag."""
    committed = await fetch_committed(cluster, group, None)
    starts = await list_offsets(cluster, dict.fromkeys(committed, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(committed, LATEST))
    return [
        GroupOffset(
            topic=partition.topic,
            partition=partition.partition,
            committed_offset=offset.offset,
            metadata=offset.metadata,
            start_offset=starts[partition].offset,
            end_offset=ends[partition].offset,
        )
        for partition, offset in sorted(committed.items())
    ]


async def reset(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit ``offsets`` for a group without members."""
    await commit(
        cluster,
        group,
        {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()},
    )


async def delete(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget what a group has committed for ``partitions``."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )

    async def attempt() -> None:
        response: OffsetDeleteResponse = await cluster.ask_coordinator(
            group, ApiKey.OFFSET_DELETE, request
        )
        check(response.error_code, of=f"group {group}")
        for topic in response.topics:
            for partition in topic.partitions:
                check(partition.error_code, of=f"{topic.name}-{partition.partition_index}")

    await asking_coordinator(cluster, group, attempt)
