"""OffsetCommit (API 8): store how far a group has read.

Versions 2 to 4 have a retention time of the offsets; 6 adds leader epochs (KIP-320); 7 static
members (KIP-345); 8 is flexible; 9 allows a member's epoch as generation (KIP-848); 10 names topics
by id (KIP-848).
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: String | None = field()


class OffsetCommitRequestTopic(Struct):
    name: String = field("0-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(Struct, flexible="8+"):
    group_id: String = field()
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String = field()
    group_instance_id: String | None = field("7+", default=None, ignorable=False)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class OffsetCommitResponseTopic(Struct):
    name: String = field("0-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(Struct, flexible="8+"):
    throttle_time_ms: Int32 = field("3+")
    topics: list[OffsetCommitResponseTopic] = field()
