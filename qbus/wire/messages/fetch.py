"""Fetch (API 1): read record batches from partitions, as a consumer or as a follower.

Version 4 is the first with record batches of format 2, and adds isolation levels (KIP-98); 5 adds
log start offsets (KIP-107); 7 sessions (KIP-227); 9 fencing by leader epoch (KIP-320); 10 zstd
(KIP-110); 11 a preferred replica (KIP-392); 12 is flexible and adds diverging epochs (KIP-595); 13
names topics by id (KIP-516); 15 moves the replica's id into a tagged field (KIP-903); 16 adds the
addresses of leaders (KIP-951); 17 a follower's directory (KIP-853); 18 a follower's high watermark
(KIP-1166).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, Int64, Records, String, Struct, Uuid, field


class ReplicaState(Struct):
    replica_id: Int32 = field("15+", default=-1, ignorable=False)
    replica_epoch: Int64 = field("15+", default=-1, ignorable=False)


class FetchPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = field("12+", default=-1, ignorable=False)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32 = field()
    replica_directory_id: Uuid = field("17+", tag=0)
    high_watermark: Int64 = field("18+", default=9223372036854775807, tag=1)


class FetchTopic(Struct):
    topic: String = field("0-12")
    topic_id: Uuid = field("13+")
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic: String = field("7-12")
    topic_id: Uuid = field("13+")
    partitions: list[Int32] = field("7+", ignorable=False)


class FetchRequest(Struct, flexible="12+"):
    cluster_id: String | None = field("12+", default=None, tag=0)
    replica_id: Int32 = field("0-14", default=-1, ignorable=False)
    replica_state: ReplicaState = field("15+", tag=1, ignorable=False)
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field()
    max_bytes: Int32 = field(default=2147483647)
    isolation_level: Int8 = field()
    session_id: Int32 = field("7+")
    session_epoch: Int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+", ignorable=False)
    rack_id: String = field("11+")
    # Qbus's own: hidden batches are sent as they are, up to the high watermark.
    hidden: Bool = field("12+", default=False, tag=10000)


class EpochEndOffset(Struct):
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64 = field()
    first_offset: Int64 = field()


class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    high_watermark: Int64 = field()
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset = field("12+", tag=0, ignorable=False)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1, ignorable=False)
    snapshot_id: SnapshotId = field("12+", tag=2, ignorable=False)
    aborted_transactions: list[AbortedTransaction] | None = field()
    preferred_read_replica: Int32 = field("11+", default=-1, ignorable=False)
    records: Records | None = field()


class FetchableTopicResponse(Struct):
    topic: String = field("0-12")
    topic_id: Uuid = field("13+")
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = field("16+")
    host: String = field("16+")
    port: Int32 = field("16+")
    rack: String | None = field("16+", default=None)


class FetchResponse(Struct, flexible="12+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("7+")
    session_id: Int32 = field("7+", ignorable=False)
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, ignorable=False)
