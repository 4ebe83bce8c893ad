"""SyncGroup (API 14): the leader hands out what it assigned, and each member gets its part.

Version 3 adds static members (KIP-345); 4 is flexible; 5 names the protocol (KIP-559).
"""

from qbus.wire.declare import Bytes, Int16, Int32, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: String = field()
    assignment: Bytes = field()


class SyncGroupRequest(Struct, flexible="4+"):
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field("3+", default=None, ignorable=False)
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field()
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignment: Bytes = field()
