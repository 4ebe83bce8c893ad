"""DescribeTransactions (API 65): how transactions stand, asked of their coordinator (KIP-664)."""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class DescribeTransactionsRequest(Struct, flexible="0+"):
    transactional_ids: list[String] = field()


class TopicData(Struct):
    topic: String = field()
    partitions: list[Int32] = field()


class TransactionState(Struct):
    error_code: Int16 = field()
    transactional_id: String = field()
    transaction_state: String = field()
    transaction_timeout_ms: Int32 = field()
    transaction_start_time_ms: Int64 = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    # While a transaction ends: the partitions whose marker is missing.
    topics: list[TopicData] = field()


class DescribeTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    transaction_states: list[TransactionState] = field()
