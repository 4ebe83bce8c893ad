"""DescribeProducers (API 61): the producers that a partition remembers (KIP-664)."""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class TopicRequest(Struct):
    name: String = field()
    partition_indexes: list[Int32] = field()


class DescribeProducersRequest(Struct, flexible="0+"):
    topics: list[TopicRequest] = field()


class ProducerState(Struct):
    producer_id: Int64 = field()
    producer_epoch: Int32 = field()
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32 = field()
    current_txn_start_offset: Int64 = field(default=-1)


class PartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    active_producers: list[ProducerState] = field()


class TopicResponse(Struct):
    name: String = field()
    partitions: list[PartitionResponse] = field()


class DescribeProducersResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    topics: list[TopicResponse] = field()
