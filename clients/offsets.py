"""Offsets that partitions have: first, last, by time."""

from collections.abc import Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from .cluster import Cluster
from .errors import check
from .grouping import by_topic
from .leaders import asking_leaders
from .types import OffsetAndTimestamp, TopicPartition


async def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after a time, or where EARLIEST, LATEST or MAX_TIMESTAMP is."""

    async def ask(node: int, led: list[TopicPartition]) -> dict[TopicPartition, OffsetAndTimestamp]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, timestamp=times[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(led).items()
            ],
        )
        return _found(await cluster.ask(node, ApiKey.LIST_OFFSETS, request))

    return await asking_leaders(cluster, times, ask)


def _found(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp]:
    found = {}
    for topic in response.topics:
        for partition in topic.partitions:
            check(partition.error_code, of=f"{topic.name}-{partition.partition_index}")
            found[TopicPartition(topic.name, partition.partition_index)] = OffsetAndTimestamp(
                partition.offset, partition.timestamp
            )
    return found
