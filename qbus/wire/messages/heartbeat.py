"""Heartbeat (API 12): a member of a group is alive, and learns whether the group rebalances.

Version 3 adds static members (KIP-345); 4 is flexible.
"""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class HeartbeatRequest(Struct, flexible="4+"):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field("3+", default=None, ignorable=False)


class HeartbeatResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field()
