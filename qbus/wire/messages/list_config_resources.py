"""ListConfigResources (API 74): the names of what has a configuration.

Version 0 lists subscriptions to clients' metrics alone (KIP-1000); 1 lists resources of any type
(KIP-1142).
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class ListConfigResourcesRequest(Struct, flexible="0+"):
    resource_types: list[Int8] = field("1+")


class ConfigResource(Struct):
    resource_name: String = field()
    resource_type: Int8 = field("1+", default=16)


class ListConfigResourcesResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    config_resources: list[ConfigResource] = field()
