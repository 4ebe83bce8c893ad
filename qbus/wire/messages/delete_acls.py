"""DeleteAcls (API 31): remove the access rules that match filters (KIP-140).

Version 1 adds the pattern's type (KIP-290); 2 is flexible; 3 knows users as resources (KIP-373).
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field()
    resource_name_filter: String | None = field()
    pattern_type_filter: Int8 = field("1+", default=3, ignorable=False)
    principal_filter: String | None = field()
    host_filter: String | None = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class DeleteAclsRequest(Struct, flexible="2+"):
    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field("1+", default=3, ignorable=False)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field()
