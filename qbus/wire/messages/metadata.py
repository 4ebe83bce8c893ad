"""Metadata (API 3): the brokers, the topics and the leaders of partitions.

Null topics mean all topics; in version 0 an empty list does. Version 1 adds racks, the controller
and internal topics; 2 the cluster's id (KIP-78); 4 lets a client forbid auto-creation (KIP-204); 5
adds offline replicas (KIP-112); 7 leader epochs (KIP-320); 8 allowed operations (KIP-430); 9 is
flexible; 10 and 12 name topics by id (KIP-516); 13 can tell a client to bootstrap again (KIP-1102).
"""

from qbus.wire.declare import Bool, Int16, Int32, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+")
    name: String | None = field(nullable="10+")


class MetadataRequest(Struct, flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True, ignorable=False)
    include_cluster_authorized_operations: Bool = field("8-10", ignorable=False)
    include_topic_authorized_operations: Bool = field("8+", ignorable=False)


class MetadataResponseBroker(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field("1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    offline_replicas: list[Int32] = field("5+")


class MetadataResponseTopic(Struct):
    error_code: Int16 = field()
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+")
    is_internal: Bool = field("1+")
    partitions: list[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = field("8+", default=-2147483648, ignorable=False)


class MetadataResponse(Struct, flexible="9+"):
    throttle_time_ms: Int32 = field("3+")
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: String | None = field("2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648, ignorable=False)
    error_code: Int16 = field("13+")
