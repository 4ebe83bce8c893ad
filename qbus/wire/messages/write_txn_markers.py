"""WriteTxnMarkers (API 27): a coordinator has partitions end transactions (KIP-98).

Version 1 is flexible; 2 adds the transaction version, by which the partition knows which producer
epochs a marker may have (KIP-1228).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, Int64, String, Struct, field


class WritableTxnMarkerTopic(Struct):
    name: String = field()
    partition_indexes: list[Int32] = field()


class WritableTxnMarker(Struct):
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    transaction_result: Bool = field()  # whether it is committed
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: Int32 = field()
    transaction_version: Int8 = field("2+", default=0)


class WriteTxnMarkersRequest(Struct, flexible="1+"):
    markers: list[WritableTxnMarker] = field()


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class WritableTxnMarkerTopicResult(Struct):
    name: String = field()
    partitions: list[WritableTxnMarkerPartitionResult] = field()


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = field()
    topics: list[WritableTxnMarkerTopicResult] = field()


class WriteTxnMarkersResponse(Struct, flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field()
