"""FindCoordinator (API 10): which broker coordinates a group or a transactional id.

Version 1 adds key types: groups (0) and transactional ids (1) (KIP-98); 3 is flexible; 4 takes
several keys (KIP-699); 6 adds share groups (key type 2) (KIP-932).
"""

from qbus.wire.declare import Int8, Int16, Int32, String, Struct, field


class FindCoordinatorRequest(Struct, flexible="3+"):
    key: String = field("0-3", ignorable=False)
    key_type: Int8 = field("1+", ignorable=False)
    coordinator_keys: list[String] = field("4+", ignorable=False)


class Coordinator(Struct):
    key: String = field("4+")
    node_id: Int32 = field("4+")
    host: String = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: String | None = field("4+")


class FindCoordinatorResponse(Struct, flexible="3+"):
    throttle_time_ms: Int32 = field("1+")
    error_code: Int16 = field("0-3", ignorable=False)
    error_message: String | None = field("1-3")
    node_id: Int32 = field("0-3", ignorable=False)
    host: String = field("0-3", ignorable=False)
    port: Int32 = field("0-3", ignorable=False)
    coordinators: list[Coordinator] = field("4+", ignorable=False)
