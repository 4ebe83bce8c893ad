"""AddOffsetsToTxn (API 25): a group whose offsets a transaction is going to commit (KIP-98).

Version 2 can return that a producer was fenced (KIP-588); 3 is flexible; 4 can return that a
transaction must be aborted (KIP-890). Clients of transaction version 2 do without this request:
TxnOffsetCommit adds the group.
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class AddOffsetsToTxnRequest(Struct, flexible="3+"):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    group_id: String = field()


class AddOffsetsToTxnResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
