"""The cluster: its brokers, and the directories in which they keep their logs."""

from collections.abc import Iterable, Mapping

from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

from ..errors import api_error, check
from ..net.retry import Outcomes, each, retrying, settle, succeeded
from ..types import ClusterDescription, LogDir, ReplicaSize, TopicPartition, by_topic
from .base import AdminBase


class Brokers(AdminBase):
    """The part of the admin client that is about brokers."""

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        await self._find_brokers()
        known = self._cluster.metadata
        nodes = tuple(node for _, node in sorted(known.nodes.items()))
        return ClusterDescription(known.cluster_id, known.controller_id, nodes)

    async def describe_log_dirs(self, nodes: Iterable[int] | None = None) -> list[LogDir]:
        """The log directories of ``nodes`` (None: of every broker) and the replicas in them.

        When some brokers do not answer, the :class:`~qbus.clients.PartialFailure` holds the
        directories of the others by their ids.
        """

        async def ask(node_id: int) -> list[LogDir]:
            async def attempt() -> list[LogDir]:
                await self._cluster.need_node(node_id)
                response: DescribeLogDirsResponse = await self._cluster.ask(
                    node_id, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)
                )
                check(response.error_code, of=f"broker {node_id}")
                return [_log_dir(node_id, result) for result in response.results]

            return await retrying(attempt, self._cluster.request_timeout)

        if nodes is None:
            await self._find_brokers()
            nodes = sorted(self._cluster.metadata.nodes)
        found = succeeded(await each(nodes, ask))
        return [log_dir for log_dirs in found.values() for log_dir in log_dirs]

    async def alter_replica_log_dirs(
        self, node_id: int, paths: Mapping[TopicPartition, str]
    ) -> None:
        """Move replicas of a broker to other directories of it: returns once that has begun.

        :meth:`describe_log_dirs` shows how far it is.
        """

        async def ask(wanted: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            await self._cluster.need_node(node_id)
            response: AlterReplicaLogDirsResponse = await self._cluster.ask(
                node_id, ApiKey.ALTER_REPLICA_LOG_DIRS, _moves({p: paths[p] for p in wanted})
            )
            return {
                TopicPartition(topic.topic_name, found.partition_index): api_error(
                    found.error_code, of=f"{topic.topic_name}-{found.partition_index}"
                )
                if found.error_code
                else None
                for topic in response.results
                for found in topic.partitions
            }

        timeout = self._cluster.request_timeout
        missing = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        succeeded(await settle(paths, ask, timeout, final=missing))

    async def _find_brokers(self) -> None:
        await retrying(lambda: self._cluster.refresh(()), self._cluster.request_timeout)


def _moves(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in paths.items():
        by_path.setdefault(path, []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )


def _log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDir:
    is_online = result.error_code == ErrorCode.NONE
    if result.error_code != ErrorCode.KAFKA_STORAGE_ERROR:  # which is how an offline one is told
        check(result.error_code, of=f"{result.log_dir} of broker {node_id}")
    replicas = [
        ReplicaSize(
            topic.name,
            partition.partition_index,
            partition.partition_size,
            lag=partition.offset_lag,
            is_future=partition.is_future_key,
        )
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
