"""ApiVersions (API 18): which APIs a broker serves, and in which versions.

Version 3 is flexible, except for the header of its response, and adds the client's software
(KIP-511) and features (KIP-584); 4 allows features whose lowest version is 0; 5 adds the broker
that the client expects to talk to (KIP-1242).
"""

from qbus.wire.declare import Bool, Int16, Int32, Int64, String, Struct, field


class ApiVersionsRequest(Struct, flexible="3+"):
    client_software_name: String = field("3+")
    client_software_version: String = field("3+")
    cluster_id: String | None = field("5+", default=None)
    node_id: Int32 = field("5+", default=-1)


class ApiVersion(Struct):
    api_key: Int16 = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


class SupportedFeatureKey(Struct):
    name: String = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


class FinalizedFeatureKey(Struct):
    name: String = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")


class ApiVersionsResponse(Struct, flexible="3+"):
    error_code: Int16 = field()
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: Int32 = field("1+")
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2)
    zk_migration_ready: Bool = field("3+", tag=3)
