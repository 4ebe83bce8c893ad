"""AlterReplicaLogDirs (key 34): move replicas between the data directories of a broker (KIP-113).

NONE says that the move is under way, or that the replica is there already, which ends a move to
elsewhere; DescribeLogDirs shows how far it has come. A path that is no data directory is
LOG_DIR_NOT_FOUND, one that failed KAFKA_STORAGE_ERROR. A partition that the broker does not hold is
NOT_LEADER_OR_FOLLOWER, and will be created there should it come, as a reassignment wants it.
Versions differ only in their encoding.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from ...authorization import CLUSTER, Operation
from ...log import TopicPartition
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin each move for itself."""
    is_allowed = context.allows(Operation.ALTER, CLUSTER)
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if is_allowed:
                    code = await _move(broker, TopicPartition(topic.name, index), directory.path)
                topics[topic.name].append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


async def _move(broker: "Broker", key: TopicPartition, path: str) -> ErrorCode:
    try:
        await broker.replicas.log_dir_moves.move(key, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
