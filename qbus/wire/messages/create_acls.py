"""CreateAcls (API 30): add access rules (KIP-140).

Version 1 adds the pattern's type (KIP-290); 2 is flexible; 3 knows users as resources (KIP-373).
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class AclCreation(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


class CreateAclsRequest(Struct, flexible="2+"):
    creations: list[AclCreation] = field()


class AclCreationResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(default=None)


class CreateAclsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    results: list[AclCreationResult] = field()
