"""JoinGroup (API 11): become a member of a group, and wait for its next generation.

Version 1 adds a time-out for rebalances (KIP-62); 4 returns an id to a new member, which joins
again with it (KIP-394); 5 adds static members (KIP-345); 6 is flexible; 7 returns the protocol type
(KIP-559); 8 adds the reason (KIP-800); 9 lets a leader skip the assignment (KIP-814).
"""

from qbus.wire.declare import Bool, Bytes, Int16, Int32, String, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: String = field()
    metadata: Bytes = field()


class JoinGroupRequest(Struct, flexible="6+"):
    group_id: String = field()
    session_timeout_ms: Int32 = field()
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: String = field()
    group_instance_id: String | None = field("5+", default=None, ignorable=False)
    protocol_type: String = field()
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: String | None = field("8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: String = field()
    group_instance_id: String | None = field("5+", default=None)
    metadata: Bytes = field()


class JoinGroupResponse(Struct, flexible="6+"):
    throttle_time_ms: Int32 = field("2+")
    error_code: Int16 = field()
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String = field()
    skip_assignment: Bool = field("9+", ignorable=False)
    member_id: String = field()
    members: list[JoinGroupResponseMember] = field()
