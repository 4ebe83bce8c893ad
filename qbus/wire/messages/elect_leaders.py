"""ElectLeaders (API 43): make the preferred or any live replica the leader (KIP-183, KIP-460).

Version 1 adds the election type and an error for the whole request; 2 is flexible.
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class TopicPartitions(Struct):
    topic: String = field()
    partitions: list[Int32] = field()


class ElectLeadersRequest(Struct, flexible="2+"):
    election_type: Int8 = field("1+", ignorable=False)
    topic_partitions: list[TopicPartitions] | None = field()
    timeout_ms: Int32 = field(default=60000)


class PartitionResult(Struct):
    partition_id: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field()


class ReplicaElectionResult(Struct):
    topic: String = field()
    partition_result: list[PartitionResult] = field()


class ElectLeadersResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("1+", ignorable=False)
    replica_election_results: list[ReplicaElectionResult] = field()
