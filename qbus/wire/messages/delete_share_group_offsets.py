"""DeleteShareGroupOffsets (API 92): forget what a share group did in topics (KIP-932)."""

from qbus.wire.declare import Int16, Int32, String, Struct, Uuid, field


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field()


class DeleteShareGroupOffsetsRequest(Struct, flexible="0+"):
    group_id: String = field()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field()
    topic_id: Uuid = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class DeleteShareGroupOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
