"""ListPartitionReassignments (API 46): partitions that are moving, and their replicas (KIP-455)."""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: String = field()
    partition_indexes: list[Int32] = field()


class ListPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = field()
    replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    removing_replicas: list[Int32] = field()


class OngoingTopicReassignment(Struct):
    name: String = field()
    partitions: list[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field()
    topics: list[OngoingTopicReassignment] = field()
