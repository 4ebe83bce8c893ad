"""AlterShareGroupOffsets (API 91): set where a share group begins in partitions (KIP-932)."""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, Uuid, field


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32 = field()
    start_offset: Int64 = field()


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field()


class AlterShareGroupOffsetsRequest(Struct, flexible="0+"):
    group_id: String = field()
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


class AlterShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()
