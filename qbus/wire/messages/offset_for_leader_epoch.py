"""OffsetForLeaderEpoch (API 23): where a leader epoch ends, to find where logs diverge (KIP-101).

Version 2 fences by leader epoch (KIP-320); 3 distinguishes followers and consumers; 4 is flexible.
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32 = field()


class OffsetForLeaderTopic(Struct):
    topic: String = field()
    partitions: list[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(Struct, flexible="4+"):
    replica_id: Int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field()


class EpochEndOffset(Struct):
    error_code: Int16 = field()
    partition: Int32 = field()
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String = field()
    partitions: list[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field()
    topics: list[OffsetForLeaderTopicResult] = field()
