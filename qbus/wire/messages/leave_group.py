"""LeaveGroup (API 13): remove members from a group.

Version 3 takes several members, static ones included (KIP-345); 4 is flexible; 5 adds the reason
(KIP-800).
"""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class MemberIdentity(Struct):
    member_id: String = field("3+", ignorable=False)
    group_instance_id: String | None = field("3+", default=None, ignorable=False)
    reason: String | None = field("5+", default=None)


class LeaveGroupRequest(Struct, flexible="4+"):
    group_id: String = field()
    member_id: String = field("0-2", ignorable=False)
    members: list[MemberIdentity] = field("3+", ignorable=False)


class MemberResponse(Struct):
    member_id: String = field("3+")
    group_instance_id: String | None = field("3+")
    error_code: Int16 = field("3+")


class LeaveGroupResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field()
    members: list[MemberResponse] = field("3+", ignorable=False)
