"""DescribeShareGroupOffsets (API 90): where share groups begin in partitions (KIP-932).

Version 1 adds how many records are not done (KIP-1226).
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, Uuid, field


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()
    partitions: list[Int32] = field()


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String = field()
    # None: all partitions that the group has a state in.
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field()


class DescribeShareGroupOffsetsRequest(Struct, flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field()
    start_offset: Int64 = field()  # -1: not known
    leader_epoch: Int32 = field()
    lag: Int64 = field("1+", default=-1)
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String = field()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class DescribeShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()
