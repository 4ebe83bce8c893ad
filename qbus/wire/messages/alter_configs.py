"""AlterConfigs (API 33): replace the whole configuration of topics and brokers (KIP-133).

Version 2 is flexible.
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, field


class AlterableConfig(Struct):
    name: String = field()
    value: String | None = field()


class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(Struct, flexible="2+"):
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = field()


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: String | None = field()
    resource_type: Int8 = field()
    resource_name: String = field()


class AlterConfigsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
