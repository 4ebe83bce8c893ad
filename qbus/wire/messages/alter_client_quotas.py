"""AlterClientQuotas (API 49): set and remove quotas of users, client ids and addresses (KIP-546).

Version 1 is flexible.
"""

from qbus.wire.declare import Bool, Float64, Int16, Int32, String, Struct, field


class EntityData(Struct):
    entity_type: String = field()
    entity_name: String | None = field()


class OpData(Struct):
    key: String = field()
    value: Float64 = field()
    remove: Bool = field()


class EntryData(Struct):
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


class AlterClientQuotasRequest(Struct, flexible="1+"):
    entries: list[EntryData] = field()
    validate_only: Bool = field()


class AlterEntryData(Struct):
    error_code: Int16 = field()
    error_message: String | None = field()
    entity: list[EntityData] = field()


class AlterClientQuotasResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32 = field()
    entries: list[AlterEntryData] = field()
