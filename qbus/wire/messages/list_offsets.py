"""ListOffsets (API 2): the offset of a point in time, or of the start or end of a partition.

Version 1 returns one offset instead of a list (KIP-79); 2 adds isolation levels (KIP-98); 4 leader
epochs (KIP-320); 6 is flexible; 7 finds the latest timestamp (KIP-734); 8 and 9 distinguish local
and tiered storage (KIP-405, KIP-1005); 10 adds a time-out (KIP-1075); 11 finds the first offset
that is not tiered yet (KIP-1023).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, Int64, String, Struct, field


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
    # Qbus's own: the end is the high watermark, behind hidden batches that nothing visible follows.
    hidden: Bool = field("6+", default=False, tag=10000)


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
