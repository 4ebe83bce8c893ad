"""DescribeConfigs (API 32): the configuration of topics and brokers, with each value's source.

Version 1 adds sources and synonyms (KIP-226); 3 types and documentation (KIP-569); 4 is flexible.
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configuration_keys: list[String] | None = field()


class DescribeConfigsRequest(Struct, flexible="4+"):
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: Bool = field()
    include_documentation: Bool = field("3+", ignorable=False)


class DescribeConfigsSynonym(Struct):
    name: String = field()
    value: String | None = field()
    source: Int8 = field()


class DescribeConfigsResourceResult(Struct):
    name: String = field()
    value: String | None = field()
    read_only: Bool = field()
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool = field()
    synonyms: list[DescribeConfigsSynonym] = field()
    config_type: Int8 = field("3+")
    documentation: String | None = field("3+")


class DescribeConfigsResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field()
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32 = field()
    results: list[DescribeConfigsResult] = field()
