"""ShareAcknowledge (API 79): say what became of acquired records (KIP-932).

Version 1 is the first stable one; 2 adds renewed locks (KIP-1222).
"""

from qbus.wire.declare import Bool, Bytes, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class AcknowledgementBatch(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    # One for all, or one for each offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    acknowledge_types: list[Int8] = field()
    # Qbus's own: what is released is not given out again before so many milliseconds; -1: as the
    # group's back-off says.
    delay_ms: Int64 = field(default=-1, tag=10001)
    # Qbus's own: the result of the one job that this batch accepts.
    result: Bytes | None = field(default=None, tag=10002)
    # Qbus's own: what is released is so because the work failed, which is counted.
    nack: Bool = field(default=False, tag=10003)


class AcknowledgePartition(Struct):
    partition_index: Int32 = field()
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class AcknowledgeTopic(Struct):
    topic_id: Uuid = field()
    partitions: list[AcknowledgePartition] = field()


class ShareAcknowledgeRequest(Struct, flexible="0+"):
    group_id: String | None = field(default=None)
    member_id: String | None = field()
    # -1: close the session; what it still has becomes available.
    share_session_epoch: Int32 = field()
    is_renew_ack: Bool = field("2+", default=False, ignorable=False)
    topics: list[AcknowledgeTopic] = field()


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field()


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(default=None)


class ShareAcknowledgeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+")
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
