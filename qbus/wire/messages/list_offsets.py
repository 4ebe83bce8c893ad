"""ListOffsets (API 2)."""

from ..declare import Int8, Int16, Int32, Int64, String, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: Int32 = field()
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64 = field()


class ListOffsetsTopic(Struct):
    name: String = field()
    partitions: list[ListOffsetsPartition] = field()


class ListOffsetsRequest(Struct, flexible="6+"):
    replica_id: Int32 = field()
    isolation_level: Int8 = field("2+", ignorable=False)
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: Int32 = field("10+")


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = field()
    partitions: list[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("2+")
    topics: list[ListOffsetsTopicResponse] = field()
