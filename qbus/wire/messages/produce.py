"""Produce (API 0): append record batches to partitions.

Version 3 is the first with record batches of format 2, and adds the transactional id (KIP-98); 5
returns the log start offset; 7 allows zstd (KIP-110); 8 returns which records were refused
(KIP-467); 9 is flexible (KIP-482); 10 returns the current leader and its address (KIP-951); 13
names topics by id (KIP-516).
"""

from qbus.wire.declare import Int16, Int32, Int64, Records, String, Struct, Uuid, field

# Kafka's own tags count from 0; these are far away from them.
_MIRROR_TAG = 10_000
_ORDERS_TAG = 10_000


class PartitionProduceData(Struct):
    index: Int32 = field()
    records: Records | None = field()
    # The offset that the first batch follows: the source has no records between the two. A log that
    # ends before it still lacks records.
    mirror_follows: Int64 = field("9+", tag=_MIRROR_TAG, default=-1)
    # Log start offset of the source, or -1; an empty log then starts there as well.
    mirror_log_start_offset: Int64 = field("9+", tag=_MIRROR_TAG + 1, default=-1)


class TopicProduceData(Struct):
    name: String = field("0-12")
    topic_id: Uuid = field("13+")
    partition_data: list[PartitionProduceData] = field()
    # The datacenter in the topic's qbus.mirror.source, and the topic's id there or "".
    mirror_source: String = field("9+", tag=_MIRROR_TAG)
    mirror_topic_id: String = field("9+", tag=_MIRROR_TAG + 1)


class ProduceRequest(Struct, flexible="9+"):
    transactional_id: String | None = field(default=None)
    acks: Int16 = field()
    timeout_ms: Int32 = field()
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field("8+")
    batch_index_error_message: String | None = field("8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32 = field()
    error_code: Int16 = field()
    base_offset: Int64 = field()
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+")
    error_message: String | None = field("8+", default=None)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0, ignorable=False)
    # Of the orders about delayed records, how many found what they are about.
    orders_done: Int32 = field("9+", tag=_ORDERS_TAG, default=0)
    # The others, by their numbers in the batch. Not in record_errors: librdkafka takes the whole
    # batch for refused when there are any, whatever the error code.
    orders_late: list[Int32] = field("9+", tag=_ORDERS_TAG + 1)


class TopicProduceResponse(Struct):
    name: String = field("0-12")
    topic_id: Uuid = field("13+")
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = field("10+")
    host: String = field("10+")
    port: Int32 = field("10+")
    rack: String | None = field("10+", default=None)


class ProduceResponse(Struct, flexible="9+"):
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field()
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, ignorable=False)
