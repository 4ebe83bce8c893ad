"""QueueOffsets (API 10101, Qbus's own): what share groups did in partitions that a broker leads.

A group's coordinator asks the partitions' leaders, and so do clients that only describe. A request
has one action: 0 describes, 1 sets where the group begins, 2 forgets the group.
"""

from qbus.wire.declare import Int8, Int16, Int32, Int64, String, Struct, field


class PartitionRequest(Struct):
    partition_index: Int32 = field()
    start_offset: Int64 = field(default=-1)  # of action 1


class TopicRequest(Struct):
    name: String = field()
    partitions: list[PartitionRequest] = field()


class QueueOffsetsRequest(Struct, flexible="0+"):
    action: Int8 = field()
    group_id: String = field()
    # None: all partitions that the broker leads and the group has a state in.
    topics: list[TopicRequest] | None = field()


class PartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    # Of action 0. -1: the group has no state in this partition.
    start_offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    length: Int64 = field(default=0)  # records that wait to be given out
    in_flight: Int64 = field(default=0)  # records that are given out
    delayed: Int64 = field(default=0)  # records that wait for a time
    oldest_ms: Int64 = field(default=-1)  # age of the oldest that is not done
    # Counts since the broker leads the partition.
    taken: Int64 = field(default=0)
    acknowledged: Int64 = field(default=0)
    released: Int64 = field(default=0)
    timeouts: Int64 = field(default=0)
    dead_letters: Int64 = field(default=0)
    dropped: Int64 = field(default=0)
    filtered: Int64 = field(default=0)
    expired: Int64 = field(default=0)
    # Records that were given up, and wait for the dead letter topic.
    given_up: Int64 = field(default=0, tag=0)


class TopicResponse(Struct):
    name: String = field()
    partitions: list[PartitionResponse] = field()


class QueueOffsetsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    topics: list[TopicResponse] = field()
