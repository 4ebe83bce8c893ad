"""CreateTopics (API 19): add topics to the cluster.

Version 4 lets the broker choose the numbers of partitions and replicas (KIP-464); 5 is flexible and
returns these numbers and the configuration (KIP-525); 7 returns topic ids (KIP-516).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field()
    broker_ids: list[Int32] = field()


class CreatableTopicConfig(Struct):
    name: String = field()
    value: String | None = field()


class CreatableTopic(Struct):
    name: String = field()
    num_partitions: Int32 = field()
    replication_factor: Int16 = field()
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


class CreateTopicsRequest(Struct, flexible="5+"):
    topics: list[CreatableTopic] = field()
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field()


class CreatableTopicConfigs(Struct):
    name: String = field("5+")
    value: String | None = field("5+")
    read_only: Bool = field("5+")
    config_source: Int8 = field("5+", default=-1)
    is_sensitive: Bool = field("5+")


class CreatableTopicResult(Struct):
    name: String = field()
    topic_id: Uuid = field("7+")
    error_code: Int16 = field()
    error_message: String | None = field()
    topic_config_error_code: Int16 = field("5+", tag=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+")


class CreateTopicsResponse(Struct, flexible="5+"):
    throttle_time_ms: Int32 = field()
    topics: list[CreatableTopicResult] = field()
