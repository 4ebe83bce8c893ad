"""AlterReplicaLogDirs (API 34): move replicas between the directories of a broker (KIP-113).

Version 2 is flexible.
"""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: String = field()
    partitions: list[Int32] = field()


class AlterReplicaLogDir(Struct):
    path: String = field()
    topics: list[AlterReplicaLogDirTopic] = field()


class AlterReplicaLogDirsRequest(Struct, flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field()


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = field()
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


class AlterReplicaLogDirsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field()
