"""DeleteTopics (API 20): delete topics and all their records.

Version 4 is flexible; 5 adds error messages (KIP-599); 6 names topics by id or by name (KIP-516).
"""

from qbus.wire.declare import Int16, Int32, String, Struct, Uuid, field


class DeleteTopicState(Struct):
    name: String | None = field("6+", default=None, ignorable=False)
    topic_id: Uuid = field("6+", ignorable=False)


class DeleteTopicsRequest(Struct, flexible="4+"):
    topics: list[DeleteTopicState] = field("6+", ignorable=False)
    topic_names: list[String] = field("0-5")
    timeout_ms: Int32 = field()


class DeletableTopicResult(Struct):
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+")
    error_code: Int16 = field()
    error_message: String | None = field("5+", default=None)


class DeleteTopicsResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field()
    responses: list[DeletableTopicResult] = field()
