"""DescribeGroups (API 15): the state and the members of groups.

Version 3 adds allowed operations (KIP-430); 4 static members (KIP-345); 5 is flexible; 6
distinguishes groups that do not exist from dead ones (KIP-1043).
"""

from qbus.wire.declare import Bool, Bytes, Int16, Int32, String, Struct, field


class DescribeGroupsRequest(Struct, flexible="5+"):
    groups: list[String] = field()
    include_authorized_operations: Bool = field("3+", ignorable=False)


class DescribedGroupMember(Struct):
    member_id: String = field()
    group_instance_id: String | None = field("4+", default=None)
    client_id: String = field()
    client_host: String = field()
    member_metadata: Bytes = field()
    member_assignment: Bytes = field()


class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: String | None = field("6+", default=None, ignorable=False)
    group_id: String = field()
    group_state: String = field()
    protocol_type: String = field()
    protocol_data: String = field()
    members: list[DescribedGroupMember] = field()
    authorized_operations: Int32 = field("3+", default=-2147483648, ignorable=False)


class DescribeGroupsResponse(Struct, flexible="5+"):
    throttle_time_ms: Int32 = field("1+")
    groups: list[DescribedGroup] = field()
