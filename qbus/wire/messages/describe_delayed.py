"""DescribeDelayed (API 10100, Qbus's own): the records that partitions hold back.

Times are milliseconds since the Unix epoch; -1: none.
"""

from qbus.wire.declare import Bytes, Int16, Int32, Int64, String, Struct, field


class PartitionRequest(Struct):
    partition_index: Int32 = field()
    # How many records to name, in the order of their due times, behind the one that is due at
    # ``after_due`` and lies at ``after_offset``.
    limit: Int32 = field()
    after_due: Int64 = field(default=-1)
    after_offset: Int64 = field(default=-1)
    # And those whose producers were told these offsets, whole.
    offsets: list[Int64] = field()


class TopicRequest(Struct):
    name: String = field()
    partitions: list[PartitionRequest] = field()


class DescribeDelayedRequest(Struct, flexible="0+"):
    topics: list[TopicRequest] = field()


class Header(Struct):
    key: String = field()
    value: Bytes | None = field(default=None)


class DelayedRecord(Struct):
    due: Int64 = field()
    offset: Int64 = field()  # where it lies
    original_offset: Int64 = field()  # what its producer was told
    taken: Int64 = field()  # when it came
    key: Bytes | None = field(default=None)
    size: Int32 = field()  # bytes of its key and value
    # Of records that are asked for by their offsets.
    ttl: Int64 = field(default=-1)
    value: Bytes | None = field(default=None)
    headers: list[Header] = field()


class PartitionResponse(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    pending: Int64 = field(default=-1)
    next_due: Int64 = field(default=-1)
    records: list[DelayedRecord] = field()


class TopicResponse(Struct):
    name: String = field()
    partitions: list[PartitionResponse] = field()


class DescribeDelayedResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    topics: list[TopicResponse] = field()
