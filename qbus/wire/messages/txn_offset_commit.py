"""TxnOffsetCommit (API 28): store how far a group has read, as a part of a transaction (KIP-98).

Version 2 adds leader epochs (KIP-320); 3 is flexible and adds the consumer's generation, member id
and instance id (KIP-447); 4 can return that a transaction must be aborted (KIP-890); 5 adds the
group to the transaction, which takes AddOffsetsToTxn before (KIP-890, transaction version 2).
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, Uuid, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: String | None = field()


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field()
    partitions: list[TxnOffsetCommitRequestPartition] = field()
    # Qbus's own: refused with UNKNOWN_TOPIC_ID if the topic of this name has another id.
    topic_id: Uuid = field("3+", tag=10000)


class TxnOffsetCommitRequest(Struct, flexible="3+"):
    transactional_id: String = field()
    group_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    generation_id: Int32 = field("3+", default=-1, ignorable=False)
    member_id: String = field("3+", ignorable=False)
    group_instance_id: String | None = field("3+", default=None, ignorable=False)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field()
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field()
