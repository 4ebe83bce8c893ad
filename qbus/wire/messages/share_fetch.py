"""ShareFetch (API 78): acquire records for a member of a share group (KIP-932).

A request acknowledges, before it acquires. Version 1 is the first stable one; 2 adds the limit by
records (KIP-1206) and renewed locks (KIP-1222).
"""

from qbus.wire.declare import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Struct,
    Uuid,
    field,
)

from .share_acknowledge import AcknowledgementBatch


class FetchPartition(Struct):
    partition_index: Int32 = field()
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class FetchTopic(Struct):
    topic_id: Uuid = field()
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


class ShareFetchRequest(Struct, flexible="0+"):
    group_id: String | None = field(default=None)
    member_id: String | None = field()
    # 0: open a session; -1: close it.
    share_session_epoch: Int32 = field()
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field()
    max_bytes: Int32 = field(default=2147483647)
    max_records: Int32 = field()
    batch_size: Int32 = field()
    # 0: whole batches; 1: never more than max_records.
    share_acquire_mode: Int8 = field("2+", default=0)
    is_renew_ack: Bool = field("2+", default=False, ignorable=False)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field()


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class AcquiredRecords(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_count: Int16 = field()


class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16 = field()
    acknowledge_error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field()
    records: Records = field()
    acquired_records: list[AcquiredRecords] = field()


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(default=None)


class ShareFetchResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field()
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
