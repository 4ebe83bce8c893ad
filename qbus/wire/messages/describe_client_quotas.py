"""DescribeClientQuotas (API 48): the quotas of users, client ids and addresses (KIP-546).

Version 1 is flexible.
"""

from qbus.wire.declare import Bool, Float64, Int8, Int16, Int32, String, Struct, field


class ComponentData(Struct):
    entity_type: String = field()
    match_type: Int8 = field()
    match: String | None = field()


class DescribeClientQuotasRequest(Struct, flexible="1+"):
    components: list[ComponentData] = field()
    strict: Bool = field()


class EntityData(Struct):
    entity_type: String = field()
    entity_name: String | None = field()


class ValueData(Struct):
    key: String = field()
    value: Float64 = field()


class EntryData(Struct):
    entity: list[EntityData] = field()
    values: list[ValueData] = field()


class DescribeClientQuotasResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field()
    entries: list[EntryData] | None = field()
