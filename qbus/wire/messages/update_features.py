"""UpdateFeatures (API 57): change the levels of features that the whole cluster has (KIP-584).

Version 1 tells kinds of downgrades apart and can only validate (KIP-778); 2 answers for all
features as a whole.
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, field


class FeatureUpdateKey(Struct):
    feature: String = field()
    max_version_level: Int16 = field()
    allow_downgrade: Bool = field("0")
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesRequest(Struct, flexible="0+"):
    timeout_ms: Int32 = field(default=60_000)
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: Bool = field("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: String = field()
    error_code: Int16 = field()
    error_message: String | None = field()


class UpdateFeaturesResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field()
    results: list[UpdatableFeatureResult] = field("0-1")
