"""OffsetDelete (API 47): delete a group's offsets of some partitions (KIP-496)."""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = field()


class OffsetDeleteRequestTopic(Struct):
    name: String = field()
    partitions: list[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(Struct):
    group_id: String = field()
    topics: list[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class OffsetDeleteResponseTopic(Struct):
    name: String = field()
    partitions: list[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(Struct):
    error_code: Int16 = field()
    throttle_time_ms: Int32 = field()
    topics: list[OffsetDeleteResponseTopic] = field()
