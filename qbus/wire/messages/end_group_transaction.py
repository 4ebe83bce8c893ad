"""EndGroupTransaction (API 10102, Qbus's own): a transaction's end for the offsets of a group.

A transaction coordinator tells a group's coordinator where committed offsets are in the metadata
store: there is no partition then that could have the marker. The request is idempotent, as a
marker is.
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, field


class EndGroupTransactionRequest(Struct, flexible="0+"):
    group_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    committed: Bool = field()


class EndGroupTransactionResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
