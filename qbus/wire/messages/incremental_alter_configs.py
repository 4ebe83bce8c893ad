"""IncrementalAlterConfigs (API 44): change some values of a configuration (KIP-339).

Version 1 is flexible.
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, field


class AlterableConfig(Struct):
    name: String = field()
    config_operation: Int8 = field()
    value: String | None = field()


class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[AlterableConfig] = field()


class IncrementalAlterConfigsRequest(Struct, flexible="1+"):
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = field()


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: String | None = field()
    resource_type: Int8 = field()
    resource_name: String = field()


class IncrementalAlterConfigsResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
