"""DescribeAcls (API 29): the access rules that match a filter (KIP-140).

Version 1 adds the pattern's type (KIP-290); 2 is flexible; 3 knows users as resources (KIP-373).
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class DescribeAclsRequest(Struct, flexible="2+"):
    resource_type_filter: Int8 = field()
    resource_name_filter: String | None = field()
    pattern_type_filter: Int8 = field("1+", default=3, ignorable=False)
    principal_filter: String | None = field()
    host_filter: String | None = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class AclDescription(Struct):
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class DescribeAclsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field("1+", default=3, ignorable=False)
    acls: list[AclDescription] = field()


class DescribeAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    resources: list[DescribeAclsResource] = field()
