"""OffsetFetch (API 9): how far a group has read.

Version 2 allows null topics, which mean all topics, and adds an error for the whole group; 5 adds
leader epochs (KIP-320); 6 is flexible; 7 can wait for transactions (KIP-447); 8 takes several
groups (KIP-709); 9 adds members and their epochs (KIP-848); 10 names topics by id (KIP-848).
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, Uuid, field


class OffsetFetchRequestTopic(Struct):
    name: String = field("0-7", ignorable=False)
    partition_indexes: list[Int32] = field("0-7", ignorable=False)


class OffsetFetchRequestTopics(Struct):
    name: String = field("8-9")
    topic_id: Uuid = field("10+")
    partition_indexes: list[Int32] = field("8+", ignorable=False)


class OffsetFetchRequestGroup(Struct):
    group_id: String = field("8+", ignorable=False)
    member_id: String | None = field("9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", ignorable=False)


class OffsetFetchRequest(Struct, flexible="6+"):
    group_id: String = field("0-7", ignorable=False)
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", ignorable=False)
    groups: list[OffsetFetchRequestGroup] = field("8+", ignorable=False)
    require_stable: Bool = field("7+", ignorable=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field("0-7")
    committed_offset: Int64 = field("0-7")
    committed_leader_epoch: Int32 = field("5-7", default=-1)
    metadata: String | None = field("0-7")
    error_code: Int16 = field("0-7")


class OffsetFetchResponseTopic(Struct):
    name: String = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = field("8+")
    committed_offset: Int64 = field("8+")
    committed_leader_epoch: Int32 = field("8+", default=-1)
    metadata: String | None = field("8+")
    error_code: Int16 = field("8+")


class OffsetFetchResponseTopics(Struct):
    name: String = field("8-9")
    topic_id: Uuid = field("10+")
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


class OffsetFetchResponseGroup(Struct):
    group_id: String = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: Int16 = field("8+")


class OffsetFetchResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("0-7", ignorable=False)
    error_code: Int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = field("8+", ignorable=False)
