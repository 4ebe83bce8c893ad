"""ListTransactions (API 66): the transactional ids that a broker coordinates (KIP-664).

Version 1 adds a filter by the transaction's age (KIP-994); 2 a filter by a regular expression for
the transactional id (KIP-1152).
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class ListTransactionsRequest(Struct, flexible="0+"):
    state_filters: list[String] = field()
    producer_id_filters: list[Int64] = field()
    duration_filter: Int64 = field("1+", default=-1, ignorable=False)
    transactional_id_pattern: String | None = field("2+", default=None, ignorable=False)


class TransactionState(Struct):
    transactional_id: String = field()
    producer_id: Int64 = field()
    transaction_state: String = field()


class ListTransactionsResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    unknown_state_filters: list[String] = field()
    transaction_states: list[TransactionState] = field()
