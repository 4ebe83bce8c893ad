"""CreatePartitions (API 37): add partitions to topics (KIP-195).

Version 2 is flexible; 3 can return that a quota is used up (KIP-599).
"""

from qbus.wire.declare import Bool, Int16, Int32, String, Struct, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = field()


class CreatePartitionsTopic(Struct):
    name: String = field()
    count: Int32 = field()
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(Struct, flexible="2+"):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = field()
    validate_only: Bool = field()


class CreatePartitionsTopicResult(Struct):
    name: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class CreatePartitionsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    results: list[CreatePartitionsTopicResult] = field()
