"""InitProducerId (API 22): a producer id for idempotence, alone or with transactions (KIP-98).

Version 2 is flexible; 3 lets a producer keep its id and raise its epoch (KIP-360); 4 can return
that a producer was fenced (KIP-588); 5 can return that a transaction must be aborted (KIP-890).
"""

from qbus.wire.declare import Int16, Int32, Int64, String, Struct, field


class InitProducerIdRequest(Struct, flexible="2+"):
    transactional_id: String | None = field()
    transaction_timeout_ms: Int32 = field()
    producer_id: Int64 = field("3+", default=-1, ignorable=False)
    producer_epoch: Int16 = field("3+", default=-1, ignorable=False)


class InitProducerIdResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field()
