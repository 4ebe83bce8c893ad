"""Records: deleting those that are no longer wanted."""

from collections.abc import Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

from ..cluster import Cluster
from ..errors import check
from ..grouping import by_topic
from ..leaders import asking_leaders
from ..types import TopicPartition


async def delete(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records before an offset; the partitions' new first offsets."""

    async def ask(node: int, led: list[TopicPartition]) -> dict[TopicPartition, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=index, offset=before[TopicPartition(topic, index)]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(led).items()
            ],
            timeout_ms=int(cluster.request_timeout * 1000),
        )
        return _deleted(await cluster.ask(node, ApiKey.DELETE_RECORDS, request))

    return await asking_leaders(cluster, before, ask)


def _deleted(response: DeleteRecordsResponse) -> dict[TopicPartition, int]:
    deleted = {}
    for topic in response.topics:
        for partition in topic.partitions:
            check(partition.error_code, of=f"{topic.name}-{partition.partition_index}")
            deleted[TopicPartition(topic.name, partition.partition_index)] = partition.low_watermark
    return deleted
