"""ListGroups (API 16): the groups that a broker coordinates.

Version 3 is flexible; 4 adds states and a filter by state (KIP-518); 5 types and a filter by type
(KIP-848).
"""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class ListGroupsRequest(Struct, flexible="3+"):
    states_filter: list[String] = field("4+", ignorable=False)
    types_filter: list[String] = field("5+", ignorable=False)


class ListedGroup(Struct):
    group_id: String = field()
    protocol_type: String = field()
    group_state: String = field("4+")
    group_type: String = field("5+")


class ListGroupsResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field()
    groups: list[ListedGroup] = field()
