"""DescribeQuorum (API 55): the voters and observers of a KRaft quorum (KIP-595).

Version 1 adds how far behind in time replicas are (KIP-836); 2 adds messages, directory ids and the
addresses of the nodes (KIP-853). Qbus has no such quorum.
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, UInt16, Uuid, field


class RequestedPartition(Struct):
    partition_index: Int32 = field()


class RequestedTopic(Struct):
    topic_name: String = field()
    partitions: list[RequestedPartition] = field()


class DescribeQuorumRequest(Struct, flexible="0+"):
    topics: list[RequestedTopic] = field()


class ReplicaState(Struct):
    replica_id: Int32 = field()
    replica_directory_id: Uuid = field("2+")
    log_end_offset: Int64 = field()
    last_fetch_timestamp: Int64 = field("1+", default=-1)
    last_caught_up_timestamp: Int64 = field("1+", default=-1)


class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field("2+", default=None)
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    high_watermark: Int64 = field()
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


class TopicData(Struct):
    topic_name: String = field()
    partitions: list[PartitionData] = field()


class Listener(Struct):
    name: String = field("2+")
    host: String = field("2+")
    port: UInt16 = field("2+")


class Node(Struct):
    node_id: Int32 = field("2+")
    listeners: list[Listener] = field("2+")


class DescribeQuorumResponse(Struct, flexible="0+"):
    error_code: Int16 = field()
    error_message: String | None = field("2+", default=None)
    topics: list[TopicData] = field()
    nodes: list[Node] = field("2+")
