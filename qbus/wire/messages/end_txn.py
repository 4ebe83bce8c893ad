"""EndTxn (API 26): commit or abort a transaction (KIP-98).

Version 2 can return that a producer was fenced (KIP-588); 3 is flexible; 4 can return that a
transaction must be aborted (KIP-890); 5 raises the producer's epoch at the end of each transaction,
and returns the producer id and epoch of the next one (KIP-890, transaction version 2).
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, field


class EndTxnRequest(Struct, flexible="3+"):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    committed: Bool = field()


class EndTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)
