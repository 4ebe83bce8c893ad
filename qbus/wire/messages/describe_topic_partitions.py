"""DescribeTopicPartitions (API 75): topics and partitions, page by page (KIP-966)."""

from qbus.wire.declare import Bool, Int16, Int32, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: String = field()


class Cursor(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


class DescribeTopicPartitionsRequest(Struct, flexible="0+"):
    topics: list[TopicRequest] = field()
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32] = field()


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = field()
    name: String | None = field()
    topic_id: Uuid = field()
    is_internal: Bool = field()
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = field(default=-2147483648)


class DescribeTopicPartitionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(default=None)
