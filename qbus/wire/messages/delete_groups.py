"""DeleteGroups (API 42): delete groups and their offsets (KIP-229).

Version 2 is flexible.
"""

from qbus.wire.declare import Int16, Int32, String, Struct, field


class DeleteGroupsRequest(Struct, flexible="2+"):
    groups_names: list[String] = field()


class DeletableGroupResult(Struct):
    group_id: String = field()
    error_code: Int16 = field()


class DeleteGroupsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    results: list[DeletableGroupResult] = field()
