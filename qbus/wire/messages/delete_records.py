"""DeleteRecords (API 21): move the start of partitions forward (KIP-107).

Version 2 is flexible.
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = field()
    offset: Int64 = field()


class DeleteRecordsTopic(Struct):
    name: String = field()
    partitions: list[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(Struct, flexible="2+"):
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = field()


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = field()
    low_watermark: Int64 = field()
    error_code: Int16 = field()


class DeleteRecordsTopicResult(Struct):
    name: String = field()
    partitions: list[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    topics: list[DeleteRecordsTopicResult] = field()
