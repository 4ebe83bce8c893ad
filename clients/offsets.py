"""The offsets of partitions: first, last, by time."""

from collections.abc import Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from .errors import api_error
from .net.cluster import Cluster
from .net.retry import Outcomes
from .net.routing import ask_leaders
from .types import OffsetAndTimestamp, TopicPartition, by_topic


async def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    timeout: float | None = None,
    *,
    committed: bool = False,
    hidden: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Return the first offset at or after a time, or that of EARLIEST, LATEST or MAX_TIMESTAMP.

    timeout: seconds for all attempts, by default the cluster's ``request_timeout``.
    committed: LATEST is the last stable offset, before the first open transaction (KIP-98).
    hidden: LATEST is behind the batches that Qbus hides from consumers.
    """

    async def ask(
        node: int, led: list[TopicPartition]
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            hidden=hidden,
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
        return _found(node, await cluster.ask(node, ApiKey.LIST_OFFSETS, request))

    return await ask_leaders(cluster, times, ask, timeout)


def _found(
    node: int, response: ListOffsetsResponse
) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
    return {
        TopicPartition(topic.name, found.partition_index): api_error(
            found.error_code, of=f"{topic.name}-{found.partition_index}", broker=node
        )
        if found.error_code
        else OffsetAndTimestamp(found.offset, found.timestamp)
        for topic in response.topics
        for found in topic.partitions
    }
