"""AlterPartitionReassignments (API 45): move partitions between brokers (KIP-455).

A null list of replicas cancels a move. Version 1 can forbid another number of replicas (KIP-860).
"""

from qbus.wire.declare import Bool, Int16, Int32, String, Struct, field


class ReassignablePartition(Struct):
    partition_index: Int32 = field()
    replicas: list[Int32] | None = field(default=None)


class ReassignableTopic(Struct):
    name: String = field()
    partitions: list[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=False)
    topics: list[ReassignableTopic] = field()


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field()


class ReassignableTopicResponse(Struct):
    name: String = field()
    partitions: list[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    allow_replication_factor_change: Bool = field("1+", default=True)
    error_code: Int16 = field()
    error_message: String | None = field()
    responses: list[ReassignableTopicResponse] = field()
