"""Log directories and the replicas in them."""

from collections.abc import Iterable

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

from ..cluster import Cluster, retrying
from ..errors import check
from ..types import LogDir, ReplicaSize


async def describe(cluster: Cluster, nodes: Iterable[int] | None) -> list[LogDir]:
    """The log directories of ``nodes`` (None: of every broker)."""
    wanted = None if nodes is None else list(nodes)

    async def attempt() -> list[LogDir]:
        await cluster.refresh(())
        found = []
        for node_id in sorted(cluster.metadata.nodes) if wanted is None else wanted:
            await cluster.need_node(node_id)
            response: DescribeLogDirsResponse = await cluster.ask(
                node_id, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)
            )
            check(response.error_code)
            found += [_log_dir(node_id, result) for result in response.results]
        return found

    return await retrying(attempt, cluster.request_timeout)


def _log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDir:
    is_online = result.error_code == ErrorCode.NONE
    if result.error_code != ErrorCode.KAFKA_STORAGE_ERROR:  # which is how an offline one is told
        check(result.error_code)
    replicas = [
        ReplicaSize(topic.name, partition.partition_index, partition.partition_size)
        for topic in result.topics
        for partition in topic.partitions
    ]
    return LogDir(
        node_id=node_id,
        path=result.log_dir,
        is_online=is_online,
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        replicas=tuple(sorted(replicas, key=lambda replica: (replica.topic, replica.partition))),
    )
